#!/usr/bin/env python3
"""Makes the tiny random models of this folder and the logits that Hugging Face transformers
computes for them in float32: the independent answer that tests/unit/test_model_golden.c compares
with. Needs torch, transformers, safetensors and gguf; run it from anywhere.

Each <name>/ holds config.json, model.safetensors, tokens.i32 (token ids) and logits.f32 (one row
of the vocabulary a token); llama-gguf/ holds the llama model as GGUF, rotary pairs permuted as
converters do.
"""
import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

HERE = pathlib.Path(__file__).resolve().parent
N_TOKENS = 40
SHAPE = dict(vocab_size=160, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=32,
             max_position_embeddings=128, bos_token_id=1, eos_token_id=2)

MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(
        **SHAPE, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=10000.0)),
    "llama-tied-llama3-rope": (LlamaForCausalLM, LlamaConfig(
        **SHAPE, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=16))),
    "llama-yarn": (LlamaForCausalLM, LlamaConfig(
        **SHAPE, tie_word_embeddings=False, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                             original_max_position_embeddings=32))),
    "mistral-window": (MistralForCausalLM, MistralConfig(
        **SHAPE, tie_word_embeddings=False, sliding_window=7, rope_theta=10000.0)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(
        **SHAPE, tie_word_embeddings=True, rope_theta=1000000.0)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(
        **SHAPE, tie_word_embeddings=True, rope_theta=1000000.0)),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig(
        **SHAPE, tie_word_embeddings=True, sliding_window=8, query_pre_attn_scalar=24,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
}


def randomize(model, generator):
    """Weights large enough that every part of the model shows in the logits."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            if "norm" in name:
                base = 0.0 if "gemma" in type(model).__name__.lower() else 1.0
                parameter.copy_(base + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * noise)
            else:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5 * 1.2)


def make(name, model_class, config):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    config._attn_implementation = "eager"
    model = model_class(config).float().eval()
    generator = torch.Generator().manual_seed(sum(name.encode()))
    randomize(model, generator)
    tokens = torch.randint(3, SHAPE["vocab_size"], (N_TOKENS,), generator=generator)
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens.numpy().astype("<i4").tofile(folder / "tokens.i32")
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")
    return model, tokens, logits


def permute(weight, n_heads):
    """Half-split rotary rows to interleaved ones."""
    return (weight.reshape(n_heads, 2, weight.shape[0] // n_heads // 2, *weight.shape[1:])
            .swapaxes(1, 2).reshape(weight.shape))


def make_gguf(model, tokens, logits):
    folder = HERE / "llama-gguf"
    folder.mkdir(exist_ok=True)
    config = model.config
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_name("tiny llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}
    for name, tensor in model.state_dict().items():
        data = tensor.numpy().astype(np.float32)
        if name == "model.embed_tokens.weight":
            target = "token_embd.weight"
        elif name == "model.norm.weight":
            target = "output_norm.weight"
        elif name == "lm_head.weight":
            target = "output.weight"
        else:
            _, _, layer, *middle, _ = name.split(".")
            middle = ".".join(middle)
            if middle == "self_attn.q_proj":
                data = permute(data, config.num_attention_heads)
            if middle == "self_attn.k_proj":
                data = permute(data, config.num_key_value_heads)
            target = f"blk.{layer}.{names[middle]}.weight"
        writer.add_tensor(target, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens.numpy().astype("<i4").tofile(folder / "tokens.i32")
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")


def main():
    for name, (model_class, config) in MODELS.items():
        model, tokens, logits = make(name, model_class, config)
        print(name, "largest logit", float(logits.abs().max()))
        if name == "llama":
            make_gguf(model, tokens, logits)


if __name__ == "__main__":
    main()
