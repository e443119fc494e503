#!/usr/bin/env python3
"""Golden rotary frequencies, computed by transformers' own ROPE_INIT_FUNCTIONS.

    pip install torch transformers
    python tests/golden/ops/generate_rope_scaling.py     # rewrites rope_scaling.json beside it
"""

import json
import pathlib

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

# (name, fields of iso_rope_config, rope_parameters, max_position_embeddings, context)
CASES = []


def add(name, scaling, dim, theta, context, trained, fields=None, parameters=None):
    CASES.append((name, dict(scaling=scaling, rotary_dim=dim, theta=theta, context=context,
                             **(fields or {})), parameters or {}, trained))


short, long = [1.0 + i / 64 for i in range(16)], [1.0 + i * i / 8 for i in range(16)]

add("none", 0, 64, 10000.0, 2048, 2048)
add("none, large theta", 0, 128, 1000000.0, 2048, 2048)
add("linear", 1, 64, 10000.0, 8192, 2048, {"factor": 4.0}, {"factor": 4.0})
for context in (1000, 2048, 8192):
    add(f"dynamic, context {context}", 2, 64, 10000.0, context, 2048,
        {"factor": 2.0, "original_context": 2048}, {"factor": 2.0})
for factor, dim in ((8.0, 128), (32.0, 64)):
    add(f"llama3, factor {factor:g}", 3, dim, 500000.0, 131072, 131072,
        {"factor": factor, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0,
         "original_context": 8192},
        {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192})
add("yarn, defaults", 4, 128, 1000000.0, 131072, 131072, {"factor": 4.0, "original_context": 32768},
    {"factor": 4.0, "original_max_position_embeddings": 32768})
add("yarn, deepseek", 4, 64, 10000.0, 163840, 163840,
    {"factor": 40.0, "original_context": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707,
     "mscale_all_dim": 1.0},
    {"factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
     "mscale": 0.707, "mscale_all_dim": 1.0})
add("yarn, attention factor", 4, 32, 150000.0, 65536, 65536,
    {"factor": 16.0, "original_context": 4096, "attention_factor": 1.5, "beta_fast": 16.0,
     "beta_slow": 2.0},
    {"factor": 16.0, "original_max_position_embeddings": 4096, "attention_factor": 1.5,
     "beta_fast": 16, "beta_slow": 2})
for context in (4096, 4097):
    add(f"longrope, context {context}", 5, 32, 10000.0, context, 131072,
        {"factor": 32.0, "original_context": 4096, "short_factors": short, "long_factors": long},
        {"factor": 32.0, "original_max_position_embeddings": 4096, "short_factor": short,
         "long_factor": long})
add("longrope, attention factor", 5, 32, 10000.0, 100, 131072,
    {"factor": 32.0, "original_context": 4096, "attention_factor": 1.19, "short_factors": short,
     "long_factors": long},
    {"factor": 32.0, "original_max_position_embeddings": 4096, "attention_factor": 1.19,
     "short_factor": short, "long_factor": long})

TYPES = ["default", "linear", "dynamic", "llama3", "yarn", "longrope"]
lines = []
for name, fields, parameters, trained in CASES:
    kind, dim = TYPES[fields["scaling"]], fields["rotary_dim"]
    config = LlamaConfig(hidden_size=dim * 2, num_attention_heads=2, head_dim=dim,
                         max_position_embeddings=trained,
                         rope_parameters={"rope_type": kind, "rope_theta": fields["theta"], **parameters})
    if kind == "default":
        embedding = LlamaRotaryEmbedding(config)
        frequencies, magnitude = embedding.inv_freq, embedding.attention_scaling
    else:
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=fields["context"])
    lines.append(json.dumps({"name": name, "config": fields, "magnitude": magnitude,
                             "frequencies": frequencies.tolist()}, separators=(",", ":")))
path = pathlib.Path(__file__).parent / "rope_scaling.json"
path.write_text('{"cases":[\n' + ",\n".join(lines) + "\n]}\n")
print(len(lines), "cases")
