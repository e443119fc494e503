#!/usr/bin/env python3
"""Writes a Hugging Face folder of the llama3-8b shape with random quantized weights.

    bench/quantized_folder.py --tool build/release/isomer f8|i8|i4 FOLDER [--layers N] [--head]

Matrices of the layers are E4M3 or int8 with a scale for each output, or int4 with one for each 128
inputs, as vLLM's llm-compressor writes them; embeddings are bf16, and so is the head without --head.
`isomer synth` has no such types, but gives the tokenizer. The standard library is enough; 9.1 GB are
written, 5.7 of i4.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import tempfile

HIDDEN, FEED, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 4096, 14336, 32, 8, 128, 128256
CHUNK = 1 << 24
GROUP = 128  # inputs that share a scale of i4

# What a config.json says of each kind.
FORMATS = {"f8": "float-quantized", "i8": "int-quantized", "i4": "pack-quantized"}
WEIGHTS = {"f8": {"num_bits": 8, "type": "float", "strategy": "channel"},
           "i8": {"num_bits": 8, "type": "int", "strategy": "channel"},
           "i4": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}}


def config(kind, layers, head):
    weights = {**WEIGHTS[kind], "symmetric": True}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": FEED, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-05, "tie_word_embeddings": False, "attention_bias": False,
        "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": FORMATS[kind],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": [] if head else ["lm_head"]}}


def matrix(kind, stem, rows, columns):
    if kind == "i4":  # eight nibbles a word, the first lowest
        yield stem + "_packed", "I32", [rows, columns // 8], kind
        yield stem + "_scale", "BF16", [rows, columns // GROUP], "halves"
        yield stem + "_shape", "I64", [2], (rows, columns)
        return
    yield stem, "F8_E4M3" if kind == "f8" else "I8", [rows, columns], kind
    yield stem + "_scale", "F32", [rows, 1], "scales"


def tensors(kind, layers, head):
    """Name, type, dims and what is in it, in the order of the file: the name of a pattern, or
    numbers."""
    query, key = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    yield "model.embed_tokens.weight", "BF16", [VOCABULARY, HIDDEN], "bf16"
    for layer in range(layers):
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{layer}.{name}.weight", "BF16", [HIDDEN], "ones"
        for name, rows, columns in (
                ("self_attn.q_proj", query, HIDDEN), ("self_attn.k_proj", key, HIDDEN),
                ("self_attn.v_proj", key, HIDDEN), ("self_attn.o_proj", HIDDEN, query),
                ("mlp.gate_proj", FEED, HIDDEN), ("mlp.up_proj", FEED, HIDDEN),
                ("mlp.down_proj", HIDDEN, FEED)):
            yield from matrix(kind, f"model.layers.{layer}.{name}.weight", rows, columns)
    yield "model.norm.weight", "BF16", [HIDDEN], "ones"
    if head:
        yield from matrix(kind, "lm_head.weight", VOCABULARY, HIDDEN)
    else:
        yield "lm_head.weight", "BF16", [VOCABULARY, HIDDEN], "bf16"


def bf16(value):
    return struct.pack("<f", value)[2:]


def patterns(kind):
    """Bytes of which a tensor of each kind is made, repeated: their length is odd in elements, so
    that no two rows begin alike."""
    numbers = random.Random(1)
    size = CHUNK - 2
    if kind == "f8":  # normal numbers, about 1 in size: no NaN
        table = bytes((b & 0x80) | 0x28 + (b & 0x7f) % 24 for b in range(256))
        codes = numbers.randbytes(size).translate(table)
    elif kind == "i8":
        codes = numbers.randbytes(size).translate(bytes(b if b != 0x80 else 0 for b in range(256)))
    else:
        codes = numbers.randbytes(size)
    halves = b"".join(bf16(numbers.gauss(0, 0.02)) for _ in range(1 << 16))[2:]
    scale = 0.01 if kind == "f8" else 0.0002
    return {kind: codes, "bf16": halves * 128, "ones": bf16(1.0) * HIDDEN,
            "scales": struct.pack("<f", scale) * FEED, "halves": bf16(0.005) * (CHUNK // 2)}


def write_weights(path, kind, layers, head):
    header, at = {}, 0
    sizes = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "I8": 1, "I32": 4, "I64": 8}
    listed = []
    for name, of_type, dims, what in tensors(kind, layers, head):
        size = sizes[of_type]
        for dim in dims:
            size *= dim
        header[name] = {"dtype": of_type, "shape": dims, "data_offsets": [at, at + size]}
        listed.append((size, what))
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = patterns(kind)
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for size, what in listed:
            pattern = memoryview(content[what] if isinstance(what, str)
                                 else struct.pack(f"<{len(what)}q", *what))
            while size > 0:
                size -= file.write(pattern[:size])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=tuple(FORMATS))
    parser.add_argument("folder")
    parser.add_argument("--tool", default="build/release/isomer")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--head", action="store_true", help="the head as the layers are, too")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([options.tool, "synth", "tiny-llama", scratch + "/"], check=True,
                       capture_output=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            with open(os.path.join(scratch, name), "rb") as source, \
                    open(os.path.join(options.folder, name), "wb") as target:
                target.write(source.read())
    with open(os.path.join(options.folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config(options.kind, options.layers, options.head), file, indent=1)
    write_weights(os.path.join(options.folder, "model.safetensors"), options.kind, options.layers,
                  options.head)


if __name__ == "__main__":
    main()
