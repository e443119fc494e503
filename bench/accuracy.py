#!/usr/bin/env python3
"""What integer kernels cost in accuracy: the perplexity of a model in each scheme, beside that of
the very same numbers stored and multiplied in f32.

    bench/accuracy.py $(scripts/fetch-model smollm2 | tail -n 1) --output bench/results/NAME.md

The last column is what a kernel adds. How much a scheme itself loses shows against the first row.
With --activation int8 that is what rounding both sides of products to 8 bits, and bf16 between
them, add: of 12,000 tokens' perplexity, with a standard deviation of some 0.06%. Ten minutes a scheme
on two cores where tiles are emulated.
"""
import argparse
import glob
import json
import os
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCHEMES = ("f16,bf16,q8_0,q6_k,q5_k,q5_1,q5_0,q4_k_m,q4_k,q4_1,q4_0,iq4_nl,q3_k,q2_k")
TEXT = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))) + [
    os.path.join(ROOT, name) for name in ("README.md", os.path.join("bench", "README.md"))]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="GGUF file; a float one, or what it lost already is in all rows")
    parser.add_argument("--isomer", default=os.path.join(ROOT, "build", "release", "isomer"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--text", nargs="*", default=TEXT, help="files; Isomer's own docs without it")
    parser.add_argument("-c", "--ctx-size", type=int, default=512)
    parser.add_argument("--activation", default="f32", help="of the kernels: f32, bf16, int8")
    parser.add_argument("--output", help="write the report there too")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        text, wide, narrow = (os.path.join(folder, name) for name in ("text", "wide", "narrow"))
        with open(text, "w") as out:
            for path in options.text:
                with open(path) as file:
                    out.write(file.read())

        def perplexity(model, activation="f32"):
            return json.loads(run(options.isomer, "perplexity", model, "-f", text, "-c",
                                  str(options.ctx_size), "--device", options.device,
                                  "--activation", activation, "--json"))

        def quantize(model, out, scheme):
            run(options.isomer, "quantize", model, out, "--scheme", scheme)

        first = perplexity(options.model)
        isa = os.environ.get("ISOMER_CPU_ISA")
        report = [f"# Accuracy of kernels: {os.path.basename(options.model)}", "",
                  f"{time.strftime('%Y-%m-%d')}, {options.device}"
                  f"{', tier ' + isa if isa else ''}, activations {options.activation}; "
                  f"perplexity over {first['n_scored']} tokens; the file as it is: {first['perplexity']:.4f}", "",
                  "| scheme | its kernels | the same weights in f32 | kernels add |", "|---|---:|---:|---:|"]
        for scheme in options.schemes.split(","):
            quantize(options.model, narrow, scheme)
            quantize(narrow, wide, "f32")
            found = perplexity(narrow, options.activation)["perplexity"]
            reference = perplexity(wide)["perplexity"]
            report.append(f"| {scheme} | {found:.4f} | {reference:.4f} | "
                          f"{100 * (found / reference - 1):+.4f}% |")
            print(report[-1])
    report = "\n".join(report) + "\n"
    print(report)
    if options.output:
        with open(options.output, "w") as out:
            out.write(report)


if __name__ == "__main__":
    main()
