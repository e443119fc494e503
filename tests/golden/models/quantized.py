#!/usr/bin/env python3
"""Makes tiny random llama folders quantized in the layouts that published models have, and the
logits that Hugging Face transformers computes in float32 for the dequantized weights. The layouts
are written from their documentation, the dequantization is torch's; needs torch, transformers and
safetensors. Run it from anywhere.

quantized-<name>/ holds config.json, model.safetensors, tokens.i32 and logits.f32, as generate.py
says.
"""
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
N_TOKENS = 12
CONFIG = dict(vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=1,
              num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              max_position_embeddings=128, bos_token_id=1, eos_token_id=2,
              tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=10000.0)
F8 = torch.float8_e4m3fn


def pack(codes, dim, order=range(8)):
    """Eight nibbles of `dim` in an int32: nibble i is code order[i]."""
    codes = codes.to(torch.int64).movedim(dim, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, 8)
    words = sum(codes[..., c] << 4 * i for i, c in enumerate(order))
    words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return words.movedim(-1, dim).contiguous()


def groups_of_four_bits(w, symmetric, group=128):
    """Codes 0 .. 15 [N, K], scales and zero points [N, K / group], the dequantized weight."""
    parts = w.reshape(w.shape[0], -1, group)
    if symmetric:
        scale = parts.abs().amax(-1) / 7
        zero = torch.full_like(scale, 8)
    else:
        low, high = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
        scale = (high - low) / 15
        zero = (-low / scale).round().clamp(1, 15)
    scale = scale.half()
    codes = ((parts / scale.float()[..., None]).round() + zero[..., None]).clamp(0, 15)
    value = (codes - zero[..., None]) * scale.float()[..., None]
    return codes.reshape(w.shape), scale, zero, value.reshape(w.shape)


def int8(w):
    scale = (w.abs().amax(-1, keepdim=True) / 127).bfloat16()
    codes = (w / scale.float()).round().clamp(-128, 127)
    return {"weight": codes.to(torch.int8), "weight_scale": scale}, codes * scale.float()


def fp8_channel(w):
    scale = w.abs().amax(-1, keepdim=True) / 448
    codes = (w / scale).to(F8)
    return {"weight": codes, "weight_scale": scale}, codes.float() * scale


def fp8_tensor(w):
    scale = (w.abs().amax() / 448).reshape(1)
    codes = (w / scale).to(F8)
    return {"weight": codes, "weight_scale": scale, "input_scale": scale.clone()}, codes.float() * scale


def fp8_block(w):
    n, k = w.shape
    padded = torch.zeros(-(-n // 128) * 128, k)
    padded[:n] = w
    scale = padded.reshape(-1, 128, k // 128, 128).abs().amax((1, 3)) / 448
    full = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:n]
    codes = (w / full).to(F8)
    return {"weight": codes, "weight_scale_inv": scale}, codes.float() * full


def packed(w, symmetric):
    codes, scale, zero, value = groups_of_four_bits(w, symmetric)
    tensors = {"weight_packed": pack(codes, 1), "weight_scale": scale,
               "weight_shape": torch.tensor(w.shape)}
    if not symmetric:
        tensors["weight_zero_point"] = pack(zero, 0)
    return tensors, value


def gptq(w, symmetric, group=128):
    codes, scale, zero, value = groups_of_four_bits(w, symmetric, group)
    order = torch.arange(w.shape[1], dtype=torch.int32) // group
    return {"qweight": pack(codes.T, 0), "scales": scale.T.contiguous(),
            "qzeros": pack(zero.T - 1, 1), "g_idx": order}, value


def awq(w):
    codes, scale, zero, value = groups_of_four_bits(w, False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {"qweight": pack(codes.T, 1, order), "scales": scale.T.contiguous(),
            "qzeros": pack(zero.T, 1, order)}, value


def compressed(format, **weights):
    return dict(quant_method="compressed-tensors", format=format, quantization_status="compressed",
                ignore=["lm_head"],
                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights)))


FOLDERS = {
    "int8": (int8, compressed("int-quantized", num_bits=8, type="int", strategy="channel",
                              symmetric=True)),
    "fp8": (fp8_channel, compressed("float-quantized", num_bits=8, type="float",
                                    strategy="channel", symmetric=True)),
    "fp8-tensor": (fp8_tensor, compressed("naive-quantized", num_bits=8, type="float",
                                          strategy="tensor", symmetric=True)),
    "fp8-block": (fp8_block, dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3",
                                  weight_block_size=[128, 128])),
    "int4": (lambda w: packed(w, True), compressed(
        "pack-quantized", num_bits=4, type="int", strategy="group", group_size=128,
        symmetric=True, actorder=None)),
    "int4-zeros": (lambda w: packed(w, False), compressed(
        "pack-quantized", num_bits=4, type="int", strategy="group", group_size=128,
        symmetric=False)),
    "gptq": (lambda w: gptq(w, False), dict(quant_method="gptq", bits=4, group_size=128,
                                            desc_act=False, sym=False)),
    "gptq-row": (lambda w: gptq(w, True, w.shape[1]), dict(
        quant_method="gptq", bits=4, group_size=-1, desc_act=False, sym=True)),
    "awq": (awq, dict(quant_method="awq", bits=4, group_size=128, version="gemm",
                      zero_point=True)),
}


def make(name, quantize, description):
    folder = HERE / f"quantized-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = LlamaConfig(**CONFIG)
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).float().eval()
    generator = torch.Generator().manual_seed(sum(name.encode()))
    tensors = {}
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.copy_((1 + 0.2 * noise).bfloat16().float())
            else:
                parameter.copy_((noise / parameter.shape[-1] ** 0.5 * 1.2).bfloat16().float())
            if "proj" in key:
                parts, value = quantize(parameter.data)
                parameter.copy_(value)
                stem = key.removesuffix("weight")
                tensors.update({stem + part: t for part, t in parts.items()})
            else:
                tensors[key] = parameter.data.bfloat16()
        tokens = torch.randint(3, CONFIG["vocab_size"], (N_TOKENS,), generator=generator)
        logits = model(tokens[None]).logits[0]
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(
        config.to_dict() | dict(architectures=["LlamaForCausalLM"],
                                quantization_config=description), indent=1, sort_keys=True))
    tokens.numpy().astype("<i4").tofile(folder / "tokens.i32")
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")


for folder_name, (quantizer, quantization) in FOLDERS.items():
    make(folder_name, quantizer, quantization)
