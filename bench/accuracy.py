#!/usr/bin/env python3
"""What kernels cost in accuracy: the perplexity of a model in each scheme, beside that of the very
same numbers stored and multiplied in f32.

    bench/accuracy.py $(scripts/fetch-model smollm2 | tail -n 1) --output bench/results/NAME.md

Both are scored token by token, so that the spread of what a kernel adds is that of differences,
which is a twentieth of a perplexity's own. `divergence` is half the mean square of those
differences: what a kernel disturbs, whichever way that happens to move this text's perplexity. How
much a scheme itself loses shows against the first row.

With --activation int8 the kernels are those that round both sides of products to 8 bits, and bf16
lies between ops. The exit code is 1 where a scheme is not within --bound percent.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCHEMES = ("f16,bf16,q8_0,q6_k,q5_k,q5_1,q5_0,q4_k_m,q4_k,q4_1,q4_0,iq4_nl,q3_k,q2_k")
TEXT = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))) + [
    os.path.join(ROOT, name) for name in ("README.md", os.path.join("bench", "README.md"))]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def compare(losses, reference):
    """Percent that the first adds to the perplexity of the second, its standard deviation, and the
    divergence in thousandths."""
    differences = [a - b for a, b in zip(losses, reference, strict=True)]
    count = len(differences)
    mean = sum(differences) / count
    square = sum(d * d for d in differences) / count
    deviation = math.sqrt(max(square - mean * mean, 0) / (count - 1))
    return 100 * math.expm1(mean), 100 * deviation, 1000 * square / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="GGUF file; a float one, or what it lost already is in all rows")
    parser.add_argument("--isomer", default=os.path.join(ROOT, "build", "release", "isomer"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--text", nargs="*", default=TEXT, help="files; Isomer's own docs without it")
    parser.add_argument("-c", "--ctx-size", type=int, default=512)
    parser.add_argument("-t", "--threads", type=int, default=0, help="of each run; 0: as isomer sees fit")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="schemes at once")
    parser.add_argument("--activation", default="f32", help="of the kernels: f32, bf16, int8")
    parser.add_argument("--isa", default=os.environ.get("ISOMER_CPU_ISA", ""),
                        help="tiers of the CPU to hold the kernels to, in turn: amx,avx512")
    parser.add_argument("--bound", type=float, default=0.5, help="percent that a kernel may add")
    parser.add_argument("--output", help="write the report there too")
    options = parser.parse_args()
    tiers = options.isa.split(",")

    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        content = "".join(open(path, encoding="utf-8").read() for path in options.text)
        with open(text, "w", encoding="utf-8") as out:
            out.write(content)

        def score(model, activation="f32", tier=""):
            environment = dict(os.environ)
            environment.pop("ISOMER_CPU_ISA", None)
            if tier:
                environment["ISOMER_CPU_ISA"] = tier
            done = subprocess.run(
                [options.isomer, "perplexity", model, "-f", text, "-c", str(options.ctx_size), "--device",
                 options.device, "--activation", activation, "-t", str(options.threads), "--json",
                 "--losses"], check=True, env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL)
            return json.loads(done.stdout)

        def measure(scheme):
            narrow, wide = (os.path.join(folder, scheme + kind) for kind in (".narrow", ".wide"))
            run(options.isomer, "quantize", options.model, narrow, "--scheme", scheme)
            run(options.isomer, "quantize", narrow, wide, "--scheme", "f32")
            reference = score(wide)
            os.unlink(wide)
            rows = []
            for tier in tiers:
                found = score(narrow, options.activation, tier)
                added, deviation, divergence = compare(found["losses"], reference["losses"])
                holds = abs(added) <= options.bound
                rows.append((f"| {scheme} | {tier + ' | ' if len(tiers) > 1 else ''}"
                             f"{found['perplexity']:.4f} | {reference['perplexity']:.4f} | {added:+.3f}% "
                             f"| {deviation:.3f} | {divergence:.2f} | {'yes' if holds else '**no**'} |",
                             holds))
            os.unlink(narrow)
            return rows

        first = score(options.model)
        tier = f", tier {tiers[0]}" if len(tiers) == 1 and tiers[0] else ""
        report = [f"# Accuracy of kernels: {os.path.basename(options.model)}", "",
                  f"{time.strftime('%Y-%m-%d')}, {options.device}{tier}, activations {options.activation}; "
                  f"perplexity over {first['n_scored']} tokens of a text of {len(content)} characters "
                  f"(SHA-256 {hashlib.sha256(content.encode()).hexdigest()[:12]}), windows of "
                  f"{options.ctx_size}; the file as it is: {first['perplexity']:.4f}", "",
                  f"| scheme | {'tier | ' if len(tiers) > 1 else ''}its kernels | the same weights in f32 "
                  f"| kernels add | its deviation | divergence, thousandths | within {options.bound}% |",
                  "|---|" + "---|" * (len(tiers) > 1) + "---:|" * 5 + "---|"]
        holds = True
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for rows in pool.map(measure, options.schemes.split(",")):
                for line, within in rows:
                    report.append(line)
                    print(line, flush=True)
                    holds = holds and within
    report = "\n".join(report) + "\n"
    print(report)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as out:
            out.write(report)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
