#!/usr/bin/env python3
"""Makes small LoRA adapters of the models in ../models and the logits that Hugging Face
transformers computes in float32 for weights merged by hand, W + scale * B A: the answer that
tests/unit/test_adapter.c compares with. Needs torch, transformers, safetensors and gguf; run it
from anywhere, after ../models/generate.py.

Each <name>/ is a PEFT folder with logits.f32 beside it, for the model's own tokens.i32.
llama.gguf is the adapter "llama" as llama.cpp's converter writes it: q and k permuted as those of
the model's GGUF file.
"""
import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "models"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
GGUF_NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
              "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}

# model, rank, alpha, rank-stabilized, modules, layers
ADAPTERS = {
    "llama": ("llama", 4, 8, False, ATTENTION + MLP, (0, 1, 2)),
    "llama-rslora": ("llama", 11, 3, True, ["q_proj", "down_proj"], (0, 2)),
    "gemma3": ("gemma3", 8, 8, False, ATTENTION + MLP, (0, 1, 2)),
}


def permute(rows, n_heads):
    """Half-split rotary rows to interleaved ones."""
    return (rows.reshape(n_heads, 2, rows.shape[0] // n_heads // 2, -1)
            .swapaxes(1, 2).reshape(rows.shape))


def make(name, model_name, rank, alpha, stabilized, modules, layers):
    model = AutoModelForCausalLM.from_pretrained(
        MODELS / model_name, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(sum(name.encode()))
    scale = alpha / (rank ** 0.5 if stabilized else rank)
    tensors = {}
    for path, linear in model.named_modules():
        parts = path.split(".")
        if parts[-1] not in modules or int(parts[2]) not in layers:
            continue
        out, width = linear.weight.shape
        down = torch.randn(rank, width, generator=generator) / width ** 0.5
        up = torch.randn(out, rank, generator=generator) * 0.3
        tensors[f"base_model.model.{path}.lora_A.weight"] = down
        tensors[f"base_model.model.{path}.lora_B.weight"] = up
        with torch.no_grad():
            linear.weight += scale * (up @ down)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, bias="none",
                  use_rslora=stabilized, use_dora=False, fan_in_fan_out=False, lora_dropout=0.0,
                  modules_to_save=None, rank_pattern={}, alpha_pattern={}, target_modules=modules)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokens = np.fromfile(MODELS / model_name / "tokens.i32", dtype="<i4").astype(np.int64)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")
    plain = np.fromfile(MODELS / model_name / "logits.f32", dtype="<f4").reshape(logits.shape)
    print(name, "moves logits by up to", float(np.abs(logits.numpy() - plain).max()))
    return model.config, alpha, tensors


def make_gguf(config, alpha, tensors):
    writer = gguf.GGUFWriter(HERE / "llama.gguf", "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(alpha))
    for name, tensor in tensors.items():
        _, _, _, _, layer, _, module, part, _ = name.split(".")
        data = tensor.numpy()
        if part == "lora_B" and module in ("q_proj", "k_proj"):
            heads = config.num_attention_heads if module == "q_proj" else config.num_key_value_heads
            data = permute(data, heads)
        writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[module]}.weight.{part.lower()}",
                          np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    for name, facts in ADAPTERS.items():
        made = make(name, *facts)
        if name == "llama":
            make_gguf(*made)


if __name__ == "__main__":
    main()
