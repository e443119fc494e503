#!/usr/bin/env python3
"""What PyTorch (cuBLASLt, cuDNN, flash attention) takes for the shapes of bench/gpu.py.

Prints a JSON object: the name of a row to microseconds and what ran. Launches are recorded in a
CUDA graph and replayed one after another over operands that together exceed the card's cache, as
`isomer conform --perf` does; the median of 7. Needs PyTorch with CUDA; bench/gpu.py --beside-torch
calls this.
"""
import json
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CACHE_BYTES = 256 << 20  # more than any card's cache holds


def bf16(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def time_us(make_operands, function, rounds=16):
    """Median time of one call. Operands are made anew until they exceed the cache."""
    sets, held = [], 0
    while not sets or (held < CACHE_BYTES and len(sets) < 64):
        sets.append(make_operands())
        held += sum(x.numel() * x.element_size() for x in sets[-1])
    rounds = max(rounds, len(sets))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for operands in sets[:3]:
            function(*operands)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(rounds):
                function(*sets[i % len(sets)])
        times = []
        for _ in range(8):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / rounds)
    return statistics.median(times[1:])


def attention(batch, queries, keys, causal):
    """32 heads over 8 key heads of 128; dense caches, which pages only make slower."""
    return lambda: (bf16(batch, 32, queries, 128), bf16(batch, 8, keys, 128),
                    bf16(batch, 8, keys, 128)), (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True))


def product(rows, out, columns):
    return lambda: (bf16(rows, columns), bf16(out, columns)), lambda x, w: F.linear(x, w)


def product_e4m3(rows, out, columns):
    """Both sides in E4M3 with a scale a row; rounding x is not in it, as it is in Isomer's."""
    def make():
        codes = [bf16(n, columns).to(torch.float8_e4m3fn) for n in (rows, out)]
        return (*codes, torch.ones(rows, 1, device="cuda"), torch.ones(1, out, device="cuda"))
    return make, lambda x, w, of_x, of_w: torch._scaled_mm(
        x, w.t(), scale_a=of_x, scale_b=of_w, out_dtype=torch.bfloat16, use_fast_accum=True)


def cases():
    """Name of the row of bench/gpu.py, what runs, operands and function, and the backend asked."""
    yield ("product, 4,096 x 4,096 x 14,336, bf16", "linear", *product(4096, 14336, 4096), None)
    yield ("product of 1 row, 57,344 x 4,096, bf16", "linear", *product(1, 57344, 4096), None)
    yield ("product of 64 rows, bf16", "linear", *product(64, 57344, 4096), None)
    for rows, out in ((64, 57344), (2048, 14336)):
        yield (f"product of {rows:,} rows, f8 x f8", "scaled_mm", *product_e4m3(rows, out, 4096),
               None)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        name = backend.name.split("_")[0].lower()
        yield ("decode attention, 64 x 8,192 positions, bf16", name,
               *attention(64, 1, 8192, False), backend)
        yield ("prefill attention, 16,384 rows, bf16", name, *attention(1, 16384, 16384, True),
               backend)
    yield ("rms_norm, 2,048 rows", "rms_norm",
           lambda: (bf16(2048, 4096), bf16(4096)), lambda x, w: F.rms_norm(x, (4096,), w), None)
    yield ("glu, 2,048 rows", "silu and mul", lambda: (bf16(2048, 14336), bf16(2048, 14336)),
           lambda gate, up: F.silu(gate) * up, None)
    logits = lambda: (torch.randn(64, 128256, device="cuda"),)
    yield ("argmax, 64 rows", "argmax", logits, lambda x: x.argmax(-1), None)
    yield ("sample, 64 rows", "softmax and multinomial", logits,
           lambda x: torch.multinomial(x.softmax(-1), 1), None)


def main():
    torch.manual_seed(1)
    results = {}
    for name, what, operands, function, backend in cases():
        try:
            if backend is None:
                us = time_us(operands, function)
            else:
                with sdpa_kernel(backend):
                    us = time_us(operands, function, rounds=4)
        except RuntimeError as error:  # a backend that this build or card lacks
            what, us = f"{what}: {str(error).splitlines()[0][:60]}", None
        torch.cuda.empty_cache()
        results.setdefault(name, []).append({"what": what, "us": us})
    print(json.dumps({"torch": torch.__version__, "rows": results}))


if __name__ == "__main__":
    main()
