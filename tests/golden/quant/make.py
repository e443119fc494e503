#!/usr/bin/env python3
"""Makes the golden vectors of the storage schemes with the `gguf`, `numpy` and `torch` packages.

For every scheme: <name>.blocks holds encoded bytes, mostly random, and <name>.values what they
decode to (f32, little endian). For the schemes whose encoder gguf has: <name>.encoded holds its
encoding of inputs.values. Run it in this folder; the result is the same on every run.
"""
import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

# name: blocks, bytes of a block, places of its halves
SCHEMES = {
    "f32": (64, 4, []), "f16": (64, 2, [0]), "bf16": (64, 2, []), "i32": (64, 4, []),
    "i8": (64, 1, []), "q8_0": (8, 34, [0]), "q4_0": (8, 18, [0]), "q4_1": (8, 20, [0, 2]),
    "q5_0": (8, 22, [0]), "q5_1": (8, 24, [0, 2]), "q2_k": (4, 84, [80, 82]),
    "q3_k": (4, 110, [108]), "q4_k": (4, 144, [0, 2]), "q5_k": (4, 176, [0, 2]),
    "q6_k": (4, 210, [208]), "iq4_nl": (8, 18, [0]),
}
ENCODED = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"]
# Smallest and largest subnormal, smallest normal, largest, a negative one.
EDGE_HALVES = np.array([0x0001, 0x03FF, 0x0400, 0x7BFF, 0xB555], np.uint16)

rng = np.random.default_rng(20240229)


def random_blocks(count, size, halves):
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for place in halves:
        bits = blocks[:, place:place + 2].copy().view(np.uint16).reshape(-1)
        bits[(bits & 0x7C00) == 0x7C00] &= 0xBFFF  # neither infinity nor NaN
        edges = min(len(EDGE_HALVES), count // 2)
        bits[:edges] = EDGE_HALVES[:edges]
        blocks[:, place:place + 2] = bits.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def decode(name, blocks):
    if name == "i32":
        return blocks.view(np.int32).astype(np.float32)
    if name == "i8":
        return blocks.view(np.int8).astype(np.float32)
    if name.endswith("_g128"):
        return decode_group(name, blocks)
    return dequantize(blocks, GGMLQuantizationType[name.upper()])


def decode_group(name, blocks):
    """Isomer's own groups of 128; FP8 codes through torch, an independent decoder."""
    rows = blocks.reshape(-1, 68 if name == "i4_g128" else 132)
    words = rows[:, :4].copy().view(np.uint32)
    if name == "i4_g128":
        scale, zero = (words & ~np.uint32(31)).view(np.float32), (words & 31).astype(np.int32)
        codes = rows[:, 4:].reshape(-1, 2, 1, 32)
        codes = np.concatenate([codes & 15, codes >> 4], 2).reshape(-1, 128)
        return (codes.astype(np.int32) - zero).astype(np.float32) * scale
    codes = rows[:, 4:].copy()
    if name == "i8_g128":
        return codes.view(np.int8).astype(np.float32) * words.view(np.float32)
    values = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy()
    return values * words.view(np.float32)


def group_blocks(name):
    """Every code there is, with scales of both signs of exponent and every zero point."""
    size = 64 if name == "i4_g128" else 128
    scales = (rng.standard_normal(32) * 10.0 ** rng.uniform(-6, 2, 32)).astype(np.float32)
    words = scales.view(np.uint32).copy()
    if name == "i4_g128":
        words = (words & ~np.uint32(31)) | np.arange(32, dtype=np.uint32)
    codes = rng.integers(0, 256, (32, size), dtype=np.uint8)
    codes.reshape(-1)[:256] = np.arange(256, dtype=np.uint8)
    return np.concatenate([words.reshape(-1, 1).view(np.uint8), codes], 1)[:16].reshape(-1)


def make_inputs():
    normal = rng.standard_normal((6, 32)) * 0.02
    steps = np.round(rng.standard_normal((2, 32)) * 4) / 2  # ties, and peaks that occur twice
    wide = rng.standard_normal((4, 32)) * 10.0 ** rng.uniform(-8, 3, (4, 1))
    zero = np.zeros((1, 32))
    equal = np.full((1, 32), 0.75)
    negative = -np.abs(rng.standard_normal((2, 32))) - 1
    return np.concatenate([normal, steps, wide, zero, equal, negative]).astype(np.float32).ravel()


for scheme, (count, size, halves) in SCHEMES.items():
    if scheme in ("f32", "bf16"):
        data = rng.standard_normal(64).astype(np.float32)
        data = data if scheme == "f32" else quantize(data, GGMLQuantizationType.BF16)
        data = np.ascontiguousarray(data).view(np.uint8)
    else:
        data = random_blocks(count, size, halves)
    data.tofile(f"{scheme}.blocks")
    np.ascontiguousarray(decode(scheme, data), np.float32).tofile(f"{scheme}.values")

inputs = make_inputs()
inputs.tofile("inputs.values")
for scheme in ENCODED:
    quantize(inputs, GGMLQuantizationType[scheme.upper()]).tofile(f"{scheme}.encoded")

for scheme in ("i8_g128", "f8_g128", "i4_g128"):
    data = group_blocks(scheme)
    data.tofile(f"{scheme}.blocks")
    np.ascontiguousarray(decode_group(scheme, data), np.float32).tofile(f"{scheme}.values")
