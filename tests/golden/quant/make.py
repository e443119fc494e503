#!/usr/bin/env python3
"""Makes the golden vectors of the storage schemes with the `gguf` and `numpy` packages.

For every scheme: <name>.blocks holds encoded bytes, mostly random, and <name>.values what they
decode to (f32, little endian). For the schemes whose encoder gguf has: <name>.encoded holds its
encoding of inputs.values. Run it in this folder; the result is the same on every run.
"""
import numpy as np
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
    return dequantize(blocks, GGMLQuantizationType[name.upper()])


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
