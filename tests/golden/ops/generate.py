#!/usr/bin/env python3
"""Golden vectors for the reference ops, computed with PyTorch, transformers and gguf.

    pip install torch transformers gguf numpy
    python tests/golden/ops/generate.py        # rewrites the .json files beside it

A file holds the cases of one op: {"name", "attributes", "inputs", "outputs"}; a tensor is
{"scheme", "dims", "hex"}, the bytes as they lie in memory, or null for an absent operand.
Results are computed in float64 from the stored (rounded, quantized) inputs.
"""

import json
import pathlib

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from transformers import LogitsProcessorList
from transformers.generation import logits_process as processors
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as rotate_interleaved
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as rotate_halves

FOLDER = pathlib.Path(__file__).parent
torch.manual_seed(20240607)
rng = np.random.default_rng(7)

PLAIN = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32}
cases = {}


def store(values, scheme="f32"):
    """A tensor entry, and the float64 values that its bytes stand for."""
    values = torch.as_tensor(values)
    if scheme in PLAIN:
        stored = values.to(PLAIN[scheme]).contiguous()
        data = stored.view(torch.uint8).numpy().tobytes() if stored.numel() else b""
        decoded = stored.double()
    else:
        kind = gguf.GGMLQuantizationType[scheme.upper()]
        rows = values.float().numpy()
        blocks = gguf.quants.quantize(rows, kind)
        data = blocks.tobytes()
        decoded = torch.from_numpy(gguf.quants.dequantize(blocks, kind).astype(np.float64))
    entry = {"scheme": scheme, "dims": list(values.shape), "hex": data.hex()}
    return entry, decoded.reshape(values.shape)


def case(op, name, inputs, outputs, **attributes):
    cases.setdefault(op, []).append(
        {"name": name, "attributes": attributes, "inputs": inputs, "outputs": outputs})


def random(*dims, scale=1.0):
    return torch.randn(*dims, dtype=torch.float64) * scale


def integers(values):
    return store(torch.as_tensor(values, dtype=torch.int32), "i32")[0]


def out(values, scheme="f32"):
    return store(values, scheme)[0]


def embedding():
    for scheme, scale, y in (("f32", 1.0, "f32"), ("q8_0", 8.0, "bf16"), ("f16", 0.5, "f16")):
        table, decoded = store(random(7, 64), scheme)
        ids = torch.tensor([6, 0, 3, 3])
        case("embedding", scheme, [integers(ids), table],
             [out(F.embedding(ids, decoded) * scale, y)], scale=scale)


def norms():
    for scheme, epsilon, offset, dims in (("f32", 1e-5, 0.0, (3, 33)), ("bf16", 1e-6, 1.0, (2, 3, 64))):
        x, xd = store(random(*dims, scale=3), scheme)
        w, wd = store(random(dims[-1]))
        y = F.rms_norm(xd, (dims[-1],), wd + offset, float(np.float32(epsilon)))
        case("rms_norm", scheme, [x, w], [out(y, scheme)], epsilon=epsilon, weight_offset=offset)
    for scheme, with_bias in (("f32", True), ("f16", False)):
        x, xd = store(random(4, 40, scale=2) + 5, scheme)
        w, wd = store(random(40))
        b, bd = store(random(40))
        y = F.layer_norm(xd, (40,), wd, bd if with_bias else None, float(np.float32(1e-5)))
        case("layer_norm", scheme, [x, w, b if with_bias else None], [out(y, scheme)])
    for scheme, scale in (("f32", 1.0), ("f32", 1000.0), ("bf16", 4.0)):
        x, xd = store(random(3, 50, scale=scale), scheme)
        case("softmax", f"{scheme} x{scale:g}", [x], [out(F.softmax(xd, -1), scheme)])


def products():
    for xs, ws, ys, dims, n, with_bias in (
            ("f32", "f32", "f32", (3, 33), 5, True), ("bf16", "q4_0", "f32", (2, 96), 7, False),
            ("f16", "q8_0", "f16", (2, 2, 64), 3, True), ("f32", "bf16", "bf16", (1, 17), 4, False)):
        x, xd = store(random(*dims), xs)
        w, wd = store(random(n, dims[-1]), ws)
        b, bd = store(random(n))
        y = F.linear(xd, wd, bd if with_bias else None)
        case("matmul", f"{xs} {ws}", [x, w, b if with_bias else None], [out(y, ys)])
    for shared, ws in ((True, "q5_1"), (False, "f32")):
        experts = torch.tensor([[3, 0], [1, 3], [2, 2]])
        x, xd = store(random(3, 1 if shared else 2, 64))
        w, wd = store(random(4, 6, 64), ws)
        y = torch.einsum("tcnk,tck->tcn", wd[experts], xd.expand(3, 2, 64))
        case("grouped_matmul", "one row for all" if shared else "a row a choice",
             [x, w, integers(experts)], [out(y)])


def experts():
    for scheme, k, normalize, scale in (("f32", 2, 1, 1.0), ("bf16", 3, 0, 2.5), ("f32", 8, 1, 1.0)):
        x, xd = store(random(5, 8), scheme)
        top, chosen = torch.topk(xd, k, dim=-1)
        weights = F.softmax(top, -1) if normalize else F.softmax(xd, -1).gather(-1, chosen)
        case("route_top_k", f"{k} of 8", [x], [integers(chosen), out(weights * scale)],
             k=k, normalize=normalize, scale=scale)
    for scheme in ("f32", "bf16"):
        x, xd = store(random(4, 3, 20), scheme)
        w, wd = store(random(4, 3))
        case("combine_experts", scheme, [x, w],
             [out(torch.matmul(wd.unsqueeze(1), xd).squeeze(1), scheme)])


def rows():
    for scheme in ("f32", "bf16"):
        x, xd = store(random(5, 9), scheme)
        picked = torch.tensor([4, 0, 4])
        case("gather_rows", scheme, [x, integers(picked)], [out(xd.index_select(0, picked), scheme)])
    for source, target in (("f32", "bf16"), ("f32", "f16"), ("bf16", "f32")):
        x, xd = store(random(3, 21, scale=100), source)
        case("convert", f"{source} to {target}", [x], [out(xd.float(), target)],
             scheme=["f32", "f16", "bf16"].index(target))
    for scheme, number in (("q8_0", 5), ("q4_0", 6)):
        x, xd = store(random(3, 96, scale=2))
        case("quantize_rows", scheme, [x], [out(xd, scheme)], scheme=number)


def rotary():
    positions = torch.tensor([0, 1, 77, 4095])
    for scheme, dims, pairs, interleaved, magnitude in (
            ("f32", (4, 3, 32), 16, 0, 1.0), ("f32", (4, 2, 24), 8, 0, 1.25),
            ("bf16", (4, 2, 16), 8, 1, 1.0), ("f32", (4, 1, 20), 4, 1, 0.5)):
        x, xd = store(random(*dims), scheme)
        f, fd = store(10000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs))
        angles = (positions.float()[:, None] * fd.float()[None, :]).double()
        head, tail = xd[..., :2 * pairs], xd[..., 2 * pairs:]
        if interleaved:
            head = rotate_interleaved(head[None], angles.sin()[None], angles.cos()[None])[0]
        else:
            both = torch.cat((angles, angles), -1)
            head = rotate_halves(head, head, both.cos(), both.sin())[0]
        y = torch.cat((head * magnitude, tail), -1)
        case("rope", f"{scheme} {dims} {pairs} pairs", [x, integers(positions), f], [out(y, scheme)],
             interleaved=interleaved, magnitude=magnitude)


def cache_writes():
    for scheme, key_dim, value_dim in (("f32", 8, 4), ("q8_0", 32, 64), ("bf16", 6, 6)):
        k, kd = store(random(4, 2, key_dim))
        v, vd = store(random(4, 2, value_dim))
        slots = [5, -1, 11, 0]
        entries, results = [], []
        for dim, rows_ in ((key_dim, kd), (value_dim, vd)):
            before, values = store(random(3, 2, 4, dim), scheme)
            entries.append(before)
            for t, slot in enumerate(slots):
                if slot >= 0:
                    values[slot // 4, :, slot % 4] = rows_[t]
            results.append(out(values, scheme))
        case("kv_write", scheme, [k, v, integers(slots), *entries], results)


class Attention(torch.nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.num_key_value_groups = groups


def attention():
    setups = [
        dict(name="decode and prefill, grouped heads", heads=4, kv=2, d=8, e=8, cache="f32"),
        dict(name="q8_0 cache, value dim of its own", heads=2, kv=1, d=64, e=32, cache="q8_0"),
        dict(name="window", heads=3, kv=3, d=8, e=8, cache="f32", window=3),
        dict(name="soft cap and scale", heads=2, kv=2, d=8, e=8, cache="bf16", soft_cap=2.0, scale=0.7),
        dict(name="alibi", heads=4, kv=4, d=8, e=8, cache="f16", alibi=True),
        dict(name="not causal", heads=2, kv=2, d=8, e=8, cache="f32", causal=0),
        dict(name="inputs of a thousand", heads=2, kv=1, d=16, e=16, cache="f32", magnitude=1e3),
    ]
    page_size, n_pages, n_tokens, n_blocks = 4, 8, 9, 4
    lengths = [(0, 1, 7), (1, 5, 5), (0, 0, 0), (6, 2, 13)]  # first row, rows, context
    tables = [[3, 6, -9, -9], [0, 5, -9, -9], [-9] * 4, [7, 1, 2, 4]]
    for s in setups:
        magnitude, window, causal = s.get("magnitude", 1.0), s.get("window", 0), s.get("causal", 1)
        q, qd = store(random(n_tokens, s["heads"], s["d"], scale=magnitude))
        keys = random(n_pages, s["kv"], page_size, s["d"], scale=magnitude)
        values = random(n_pages, s["kv"], page_size, s["e"], scale=magnitude)
        if s["cache"] != "q8_0":
            for (_, n, context), table in zip(lengths, tables):
                if n and context % page_size:
                    keys[table[context // page_size], :, context % page_size:] = float("nan")
                    values[table[context // page_size], :, context % page_size:] = float("nan")
        k, kd = store(keys, s["cache"])
        v, vd = store(values, s["cache"])
        slopes, sd = store(2.0 ** -torch.arange(1, s["heads"] + 1, dtype=torch.float64))
        scale = float(np.float32(s.get("scale", 0))) or s["d"] ** -0.5
        y = torch.zeros(n_tokens, s["heads"], s["e"], dtype=torch.float64)
        for (start, n, context), table in zip(lengths, tables):
            if not n:
                continue
            flat = [torch.cat([c[p] for p in table if p >= 0], 1)[:, :context] for c in (kd, vd)]
            query = qd[start:start + n].transpose(0, 1)
            rows_ = torch.arange(context - n, context)[:, None]
            columns = torch.arange(context)[None, :]
            hidden = torch.zeros(n, context, dtype=torch.bool)
            if causal:
                hidden |= columns > rows_
            if window:
                hidden |= columns <= rows_ - window
            mask = torch.zeros(s["heads"], n, context, dtype=torch.float64)
            if s.get("alibi"):
                mask = sd[:, None, None] * (columns - rows_)
            mask = mask.masked_fill(hidden, float("-inf"))
            result, _ = eager_attention_forward(
                Attention(s["heads"] // s["kv"]), query[None], flat[0][None], flat[1][None],
                mask[None], scaling=scale, softcap=s.get("soft_cap"))
            y[start:start + n] = result[0]
        case("paged_attention", s["name"],
             [q, k, v, integers(tables), integers([a for a, _, _ in lengths]),
              integers([b for _, b, _ in lengths]), integers([c for _, _, c in lengths]),
              slopes if s.get("alibi") else None],
             [out(y)], scale=s.get("scale", 0.0), causal=causal, window=window,
             soft_cap=s.get("soft_cap", 0.0))


def elements():
    functions = [F.silu, lambda x: F.gelu(x, approximate="tanh"), F.gelu, F.relu, torch.sigmoid]
    for number, function in enumerate(functions):
        scheme = ("f32", "bf16", "f16")[number % 3]
        gate, gd = store(random(3, 17, scale=3), scheme)
        up, ud = store(random(3, 17), scheme)
        case("glu", f"activation {number}", [gate, up], [out(function(gd) * ud, scheme)],
             activation=number)
        case("activate", f"activation {number}", [gate], [out(function(gd), scheme)],
             activation=number)
    for scheme, dims in (("f32", (3, 10)), ("bf16", (10,))):
        a, ad = store(random(3, 10), scheme)
        b, bd = store(random(*dims), scheme)
        case("add", f"{scheme} {dims}", [a, b], [out(ad + bd, scheme)])
    for scale, cap in ((1.0, 30.0), (0.25, 0.0)):
        x, xd = store(random(2, 11, scale=40))
        y = xd * scale
        case("soft_cap", f"cap {cap:g}", [x], [out(torch.tanh(y / cap) * cap if cap else y)],
             scale=scale, cap=cap)
    x, xd = store(torch.tensor([[1.0, 5.0, 5.0, -2.0], [-3.0, -4.0, -1.5, -1.5]]))
    case("argmax", "ties", [x], [integers(np.argmax(xd.numpy(), -1))])
    x, xd = store(random(4, 100))
    case("argmax", "random", [x], [integers(torch.argmax(xd, -1))])


def philox(seed, counter):
    """Philox4x32-10; the C code is also held against Random123's known answers."""
    x, key = [np.uint64(c) for c in counter], [seed & 0xFFFFFFFF, seed >> 32]
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        high_a, high_b = a >> np.uint64(32), b >> np.uint64(32)
        x = [high_b ^ x[1] ^ np.uint64(key[0]), b & mask, high_a ^ x[3] ^ np.uint64(key[1]), a & mask]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [int(w) for w in x]


def noise(seed, draw, n):
    words = np.array([philox(seed, [block, draw, 0, 0]) for block in range((n + 3) // 4)], np.uint64)
    words = words.reshape(-1)[:n]
    high, low = (words >> np.uint64(8)).astype(np.float32), (words & np.uint64(255)).astype(np.float32)
    v = high * np.float32(2.0 ** -24) + (low + np.float32(0.5)) * np.float32(2.0 ** -32)
    v = np.minimum(v, np.float32(1 - 2.0 ** -24)).astype(np.float64)
    return -np.log(-np.log1p(-v))


def draw_token(logits, p, seed, draw, history, output_start, allowed):
    """Filters by transformers' own processors, then the largest logit + noise."""
    tokens = [t for t in history if t >= 0]
    scores = torch.tensor(logits, dtype=torch.float64)[None]
    if allowed is not None:
        scores = scores.masked_fill(~torch.tensor(allowed)[None], float("-inf"))
    if p["repetition"] != 1:
        penalty = processors.RepetitionPenaltyLogitsProcessor(penalty=p["repetition"])
        scores = penalty(torch.tensor([tokens]), scores)
    counts = np.bincount([t for t in history[output_start:] if t >= 0], minlength=len(logits))
    scores = scores - torch.tensor(p["frequency"] * counts + p["presence"] * (counts > 0))[None]
    if p["temperature"] == 0:
        return int(torch.argmax(scores))
    warpers = [processors.TemperatureLogitsWarper(p["temperature"])]
    if p["top_k"]:
        warpers.append(processors.TopKLogitsWarper(top_k=int(p["top_k"])))
    if p["top_p"] < 1:
        warpers.append(processors.TopPLogitsWarper(top_p=p["top_p"]))
    if p["min_p"]:
        warpers.append(processors.MinPLogitsWarper(min_p=p["min_p"]))
    scores = LogitsProcessorList(warpers)(torch.tensor([tokens or [0]]), scores)[0].numpy()
    return int(np.argmax(scores + noise(seed, draw, len(scores))))


def samples():
    names = ["temperature", "top_k", "top_p", "min_p", "repetition", "presence", "frequency"]
    setups = [
        ("temperature", [0.8, 0, 1, 0, 1, 0, 0]), ("greedy", [0, 0, 1, 0, 1, 0, 0]),
        ("top-k", [1, 4, 1, 0, 1, 0, 0]), ("top-p", [1.5, 0, 0.7, 0, 1, 0, 0]),
        ("min-p", [2, 0, 1, 0.2, 1, 0, 0]), ("all", [0.9, 20, 0.9, 0.05, 1.3, 0.4, 0.2]),
        ("greedy with penalties", [0, 0, 1, 0, 1.5, 0.7, 0.3]),
    ]
    n_rows, n_tokens, n_history = 12, 70, 10
    for masked in (False, True):
        for name, values in setups:
            parameters = np.tile(np.array(values + [0], np.float32), (n_rows, 1))
            p = {key: float(np.float32(value)) for key, value in zip(names, values)}
            logits = (rng.standard_normal((n_rows, n_tokens)) * 2).astype(np.float32)
            history = rng.integers(0, n_tokens, (n_rows, n_history))
            history[:, 7:] = -1
            state = np.zeros((n_rows, 4), np.int64)
            allowed = rng.random((n_rows, n_tokens)) < 0.5
            words = np.zeros((n_rows, 3), np.int64)
            tokens = []
            for r in range(n_rows):
                seed = int(rng.integers(0, 2 ** 63))
                state[r] = [seed & 0xFFFFFFFF, seed >> 32, r * 5, 3]
                for t in range(n_tokens):
                    words[r, t // 32] |= int(allowed[r, t]) << (t % 32)
                tokens.append(draw_token(logits[r].astype(np.float64), p, seed, r * 5,
                                         history[r].tolist(), 3, allowed[r] if masked else None))
            def wrap(a):
                return integers(a.astype(np.uint32).view(np.int32))
            case("sample", name + (", masked" if masked else ""),
                 [store(logits)[0], store(parameters)[0], wrap(state), integers(history),
                  wrap(words) if masked else None], [integers(tokens)])


for part in (embedding, norms, products, experts, rows, rotary, cache_writes, attention, elements,
             samples):
    part()
for op, entries in cases.items():
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    (FOLDER / f"{op}.json").write_text(f'{{"cases":[\n{lines}\n]}}\n')
    print(op, len(entries))
