#!/usr/bin/env python3
"""How near a GPU comes to the speed of light: one table, a floor beside every number.

    bench/gpu.py --tool build/release/isomer [--device cuda:0] [--scratch FOLDER] [--schemes bf16,q8_0]

Nothing is built or downloaded: models are `isomer synth` of the llama3-8b shape with random
weights, or of bench/quantized_folder.py, written to the scratch folder one at a time (16 GB at
most) and deleted; those in the folder of --models (llama3-8b-SCHEME.gguf, llama3-8b-f8) are taken
from there. Two ceilings are measured first, with Isomer's own kernels: bytes a second of a large copy
(read plus written), and operations a second of a large bf16 product. A floor is the larger of the
bytes that must move over the first and the operations over the second. Needs the Python standard
library only; takes under ten minutes on one H200. With --beside-torch PyTorch runs the same shapes
(bench/beside_torch.py).
"""
import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time

# The llama3-8b shape.
LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, FEED, VOCABULARY = 32, 32, 8, 128, 4096, 14336, 128256
KV_TOKEN_ELEMENTS = LAYERS * 2 * KV_HEADS * HEAD_DIM
# Every matrix but the embedding table, of which a step reads single rows.
LAYER_ELEMENTS = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV_HEADS * HEAD_DIM
                           + 3 * HIDDEN * FEED)
HEAD_ELEMENTS = HIDDEN * VOCABULARY
BITS = {"bf16": 16, "f16": 16, "q8_0": 8.5, "q4_0": 4.5, "q4_k_m": 4.9, "q4_k": 4.5, "f8": 8.25,
        "i8": 8.25, "i4": 4.25, "i4-head": 4.25, "f8_g128": 8.25}
# Folders of bench/quantized_folder.py and what activations are. Heads are bf16, or as the layers.
FOLDERS = {"f8": "fp8", "i8": "int8", "i4": "bf16", "i4-head": "bf16"}
DEPTH, GENERATED, BATCH, PROMPT = 512, 128, 64, 2048

ATTENTION = ("paged_attention T={rows} H=32 G=8 D=128 E=128 P={pages} S=64 Q={sequences} B={blocks} "
             "batch={batch} rows=bf16 cache={cache}")
KERNELS = [
    ("copy 1 GB", "convert *=262144 D=1024 x=f32 scheme=f32"),
    ("product, 4,096 x 4,096 x 14,336, bf16",
     "matmul *=4096 N=14336 K=4096 weight=bf16 rows=bf16"),
    ("product of 1 row, 57,344 x 4,096, bf16", "matmul *=1 N=57344 K=4096 weight=bf16 rows=bf16"),
    ("product of 1 row, q8_0", "matmul *=1 N=57344 K=4096 weight=q8_0 rows=bf16"),
    ("product of 1 row, q4_0", "matmul *=1 N=57344 K=4096 weight=q4_0 rows=bf16"),
    ("product of 1 row, q4_k", "matmul *=1 N=57344 K=4096 weight=q4_k rows=bf16"),
    ("product of 1 row, i4_g128", "matmul *=1 N=57344 K=4096 weight=i4_g128 rows=bf16"),
    ("product of 64 rows, bf16", "matmul *=64 N=57344 K=4096 weight=bf16 rows=bf16"),
    ("product of 64 rows, q8_0", "matmul *=64 N=57344 K=4096 weight=q8_0 rows=bf16"),
    ("product of 2,048 rows, q4_0", "matmul *=2048 N=14336 K=4096 weight=q4_0 rows=bf16"),
    ("product of 2,048 rows, q8_0", "matmul *=2048 N=14336 K=4096 weight=q8_0 rows=bf16"),
] + [
    (f"product of {rows:,} rows, {kind} x {kind}",
     f"matmul *={rows} N={features} K=4096 weight={kind}_g128 operand_bits=8 rows=bf16")
    for rows, features in ((64, 57344), (2048, 14336)) for kind in ("f8", "i8")
] + [
    (f"decode attention, 64 x 8,192 positions, {cache}",
     ATTENTION.format(rows=64, pages=8200, sequences=64, blocks=128, batch="full", cache=cache))
    for cache in ("bf16", "q8_0", "f8_g128")
] + [
    ("prefill attention, 16,384 rows, bf16",
     ATTENTION.format(rows=16384, pages=258, sequences=1, blocks=256, batch="prefill",
                      cache="bf16")),
    ("rms_norm, 2,048 rows", "rms_norm *=2048 D=4096 rows=bf16"),
    ("glu, 2,048 rows", "glu *=2048 D=14336 rows=bf16"),
    ("rope, 2,048 rows of 32 heads", "rope T=2048 H=32 D=128 F=64 rows=bf16"),
    ("argmax, 1 row", "argmax R=1 V=128256"),
    ("argmax, 64 rows", "argmax R=64 V=128256"),
    ("sample, 1 row", "sample R=1 V=128256 W=512 M=4008 allowed=none"),
    ("sample, 64 rows", "sample R=64 V=128256 W=512 M=4008 allowed=none"),
]


class Bench:
    def __init__(self, options):
        self.options = options
        self.start = time.monotonic()
        self.copy = self.operations = None  # bytes/s, operations/s

    def isomer(self, *arguments, timeout=300):
        """Standard output of the command, or None, with the failure on standard error."""
        done = subprocess.run([self.options.tool, *map(str, arguments)], capture_output=True,
                              text=True, timeout=timeout)
        if done.returncode != 0:
            print(f"isomer {' '.join(map(str, arguments))}: {done.stderr.strip()[-400:]}",
                  file=sys.stderr)
            return None
        return done.stdout

    def say(self, text):
        print(f"[{time.monotonic() - self.start:4.0f} s] {text}", file=sys.stderr, flush=True)

    # ---- Kernels

    def kernel(self, case):
        """us, bytes/s, operations/s and the kernel's name of one case."""
        text = self.isomer("conform", "--device", self.options.device, "--perf", case)
        row = re.search(r"^\s*([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+): ", text or "", re.M)
        if not row:
            return None
        return float(row[1]), float(row[2]) * 1e9, float(row[3]) * 1e9, row[4]

    def kernels(self):
        rows = []
        for name, case in KERNELS:
            measured = self.kernel(case)
            self.say(f"{name}: {measured}")
            if not measured:
                rows.append((name, "failed", "", "", "", ""))
                continue
            us, rate, operations, kernel = measured
            if name.startswith("copy"):
                self.copy = rate
            if name.startswith("product, "):
                self.operations = operations
            # 8-bit operands are multiplied twice as fast.
            most = (self.operations or 1e30) * (2 if "operand_bits=8" in case else 1)
            floor = max(us * rate / self.copy, us * operations / most)
            rows.append((name, f"{us:.1f}", f"{rate / 1e9:.0f}", f"{operations / 1e12:.1f}",
                         f"{floor:.1f}", f"{100 * floor / us:.0f} %", kernel))
        return rows

    # ---- PyTorch

    def torch(self):
        """Rows of what PyTorch takes, and its version."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "beside_torch.py")
        done = subprocess.run([self.options.torch_python, script], capture_output=True, text=True,
                              timeout=300)
        if done.returncode != 0:
            print(f"{script}: {done.stderr.strip()[-400:]}", file=sys.stderr)
            return [], "failed"
        found = json.loads(done.stdout.splitlines()[-1])
        return [(name, run["what"], f"{run['us']:.1f}" if run["us"] else "not there")
                for name, runs in found["rows"].items() for run in runs], found["torch"]

    # ---- The host

    def gap(self, model, *arguments):
        """us for which the device has nothing to do between two replayed steps, as a sentence."""
        environment = {**os.environ, "ISOMER_CUDA_GAPS": "1"}
        done = subprocess.run([self.options.tool, "bench", model, "--device", self.options.device,
                               "-r", "1", *map(str, arguments)], capture_output=True, text=True,
                              timeout=300, env=environment)
        found = re.search(r"between replayed steps for ([\d.]+) us \(median of \d+; a tenth of them "
                          r"above ([\d.]+) us", done.stderr)
        return f"{found[1]} us (a tenth above {found[2]})" if found else "not told"

    def host(self):
        """us of a whole step of a model so small that starting kernels and the host are all, and
        its gaps."""
        model = os.path.join(self.options.scratch, "isomer-gpu-tiny.gguf")
        arguments = ("-p", 0, "-n", 512, "-d", 64, "-c", 1024)
        try:
            if self.isomer("synth", "tiny-llama", model) is None:
                return None, None
            found = self.speed(model, *arguments)
            return 1e6 / found[0]["avg_ts"] if found else None, self.gap(model, *arguments)
        finally:
            if os.path.exists(model):
                os.remove(model)

    # ---- Whole steps

    def floor(self, scheme, rows, context, sequences=1, cache="bf16"):
        """Tokens/s that no step of `rows` rows can exceed, its sequences `context` tokens long."""
        eight = FOLDERS.get(scheme) in ("fp8", "int8")
        head_bits = 16 if scheme in FOLDERS and "-head" not in scheme else BITS[scheme]
        moved = (LAYER_ELEMENTS * BITS[scheme] + HEAD_ELEMENTS * head_bits) / 8
        moved += sequences * context * KV_TOKEN_ELEMENTS * BITS[cache] / 8
        # A prompt's head is for its last row.
        head_rows = rows if rows == sequences else 1
        operations = 2 * LAYER_ELEMENTS * rows / (2 if eight else 1) + 2 * HEAD_ELEMENTS * head_rows
        operations += 4 * LAYERS * HEADS * HEAD_DIM * rows * context / (2 if rows > sequences else 1)
        return rows / max(moved / self.copy, operations / self.operations)

    def speed(self, model, *arguments, cache="bf16"):
        text = self.isomer("bench", model, "--device", self.options.device, "--kv-type", cache,
                           "--json", "-r", self.options.repetitions, *arguments)
        return [sample for sample in json.loads(text)] if text else []

    def steps(self, scheme, model):
        mean = DEPTH + GENERATED // 2
        decode = ("-p", 0, "-n", GENERATED, "-d", DEPTH, "-c", 1024)
        wanted = [(f"decode, batch 1, {DEPTH} context", self.floor(scheme, 1, mean), decode, "bf16"),
                  (f"decode, batch {BATCH}, {DEPTH} context", self.floor(scheme, BATCH, mean, BATCH),
                   decode + ("--batch", BATCH), "bf16"),
                  (f"prefill {PROMPT}", self.floor(scheme, PROMPT, PROMPT),
                   ("-p", PROMPT, "-n", 0, "-b", PROMPT, "-c", PROMPT + 64), "bf16")]
        if scheme == "f8":
            wanted.append((f"decode, batch {BATCH}, {DEPTH} context, FP8 cache",
                           self.floor(scheme, BATCH, mean, BATCH, "f8_g128"),
                           decode + ("--batch", BATCH), "f8_g128"))
        rows = []
        for name, floor, arguments, cache in wanted:
            if scheme in FOLDERS:
                arguments += ("--activation", FOLDERS[scheme])
            found = self.speed(model, *arguments, cache=cache)
            speed = found[0]["avg_ts"] if found else None
            self.say(f"{scheme} {name}: {speed}")
            rows.append((f"{name}, {scheme}", f"{speed:.1f}" if speed else "failed", f"{floor:.0f}",
                         f"{100 * speed / floor:.0f} %" if speed else ""))
        return rows

    def make(self, scheme, path):
        """Whether a model of this scheme was written."""
        if scheme not in FOLDERS:
            return self.isomer("synth", "--scheme", scheme, "llama3-8b", path) is not None
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quantized_folder.py")
        kind, _, head = scheme.partition("-")
        return subprocess.run([sys.executable, script, "--tool", self.options.tool, kind, path,
                               *(["--head"] if head else [])]).returncode == 0

    def find(self, scheme):
        """A model of this scheme that is there already, or None."""
        suffix = "" if scheme in FOLDERS else ".gguf"
        path = os.path.join(self.options.models or "", f"llama3-8b-{scheme}{suffix}")
        return path if self.options.models and os.path.exists(path) else None

    def models(self):
        rows, gap = [], None
        for scheme in self.options.schemes.split(","):
            found = self.find(scheme)
            model = os.path.join(self.options.scratch, f"isomer-gpu-{scheme}" +
                                 ("" if scheme in FOLDERS else ".gguf"))
            try:
                if found or self.make(scheme, model):
                    self.say(f"{scheme}: {found or 'written'}")
                    rows += self.steps(scheme, found or model)
                    gap = gap or self.gap(found or model, "-p", 0, "-n", 128, "-d", DEPTH,
                                          "-c", 1024)
            finally:
                if os.path.isdir(model):
                    shutil.rmtree(model)
                elif os.path.exists(model):
                    os.remove(model)
        return rows, gap


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="build/release/isomer")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--scratch", default="/tmp")
    parser.add_argument("--models", help="folder of models that are there already")
    parser.add_argument("--schemes", default="bf16,q8_0,q4_0,q4_k_m,f8,i8,i4,i4-head")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--beside-torch", action="store_true", help="time PyTorch, too")
    parser.add_argument("--torch-python", default="python3", help="the Python that has PyTorch")
    parser.add_argument("--out", default="bench/results", help="folder of the markdown file")
    options = parser.parse_args()
    bench = Bench(options)
    devices = json.loads(bench.isomer("devices", "--json"))
    card = next((row for row in devices if row.get("device") == options.device), None)
    if not card:
        sys.exit(f"there is no {options.device}: {devices}")
    kernel_rows = bench.kernels()
    tiny, tiny_gap = bench.host()
    beside = ""
    if options.beside_torch:
        rows, version = bench.torch()
        beside = f"""
PyTorch {version} beside them, the same shapes on the same card (caches dense, not paged):

{table(["kernel", "what ran", "us"], rows)}
"""
    step_rows, gap = bench.models()
    text = f"""# Isomer on {card["name"]}

{datetime.date.today()}, {card["detail"]}. Ceilings measured in the same run: {bench.copy / 1e12:.2f} TB/s for
a copy (bytes read plus bytes written), {bench.operations / 1e12:.0f} TFLOP/s for a bf16 product.

llama3-8b shape, random weights (`isomer synth`), activations and cache in bf16, tokens/s over whole
steps that end in a token on the host; means of {options.repetitions}. A floor counts every weight and cache byte once.

{table(["step", "tokens/s", "floor", "of the floor"], step_rows)}

Between two replayed steps of decoding the device has nothing to do for {gap or "failed"},
with tiny-llama, whose whole steps take {f"{tiny:.0f} us" if tiny else "failed"}, for {tiny_gap}.

Single kernels, launched back to back (small ones show what a launch costs):

{table(["kernel", "us", "GB/s", "TFLOP/s", "floor us", "of the floor", "record"], kernel_rows)}
{beside}"""
    print(text)
    slug = re.sub(r"[^a-z0-9]+", "-", card["name"].lower()).strip("-")
    path = os.path.join(options.out, f"{datetime.date.today()}-{slug}.md")
    os.makedirs(options.out, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    bench.say(f"written to {path}")


if __name__ == "__main__":
    main()
