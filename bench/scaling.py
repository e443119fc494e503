#!/usr/bin/env python3
"""How speed changes as work grows: decode against context, prefill against prompt length,
throughput against batch. One SVG a question and a table with the numbers.

    bench/scaling.py model.gguf --output bench/results/NAME [--llama-bench PATH/llama-bench]

The peer is measured where its program can ask the same question. See bench/README.md."""
import argparse
import json
import os
import subprocess
import sys
import time

import plot

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*command):
    print("+", *command, file=sys.stderr)
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def numbers(text):
    return [int(number) for number in text.split(",")]


def decode_by_context(program, options, context_flags):
    """Tokens/s of one sequence after each number of cached tokens."""
    points = []
    for depth in options.contexts:
        rows = run(*program, "-p", "0", "-n", str(options.n_gen), "-d", str(depth),
                   *context_flags(depth))
        points.append((depth, rows[-1]["avg_ts"]))
    return points


def prefill_by_length(program, options, context_flags):
    points = []
    for length in options.prompts:
        rows = run(*program, "-p", str(length), "-n", "0", *context_flags(length))
        points.append((length, rows[-1]["avg_ts"]))
    return points


def throughput_by_batch(program, options):
    points = []
    for batch in options.batches:
        rows = run(*program, "-p", "0", "-n", str(options.n_gen), "--batch", str(batch))
        points.append((batch, rows[-1]["avg_ts"]))
    return points


def table(title, x_name, series):
    xs = sorted({x for points in series.values() for x, _ in points})
    out = [f"\n## {title}\n", "| " + " | ".join([x_name, *series]) + " |",
           "|---:" * (1 + len(series)) + "|"]
    for x in xs:
        values = [dict(points).get(x) for points in series.values()]
        out.append(f"| {x} | " + " | ".join("" if v is None else f"{v:.1f}" for v in values) + " |")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--output", required=True, help="folder for report.md and the plots")
    parser.add_argument("--isomer", default=os.path.join(ROOT, "build", "release", "isomer"))
    parser.add_argument("--llama-bench", help="measure llama.cpp too")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-n", "--n-gen", type=int, default=16, help="tokens of a decode sample")
    parser.add_argument("--contexts", type=numbers, default=numbers("128,512,2048,8192,32768"))
    parser.add_argument("--prompts", type=numbers, default=numbers("32,128,512,2048"))
    parser.add_argument("--batches", type=numbers, default=numbers("1,2,4,8,16,32,64"))
    options = parser.parse_args()

    common = ["-m", options.model, "-t", str(options.threads), "-r", str(options.repetitions)]
    isomer = [options.isomer, "bench", *common, "--device", options.device, "--json"]
    room = lambda tokens: ["-c", str(tokens + options.n_gen + 1)]
    decode = {"Isomer": decode_by_context(isomer, options, room)}
    prefill = {"Isomer": prefill_by_length(isomer, options, room)}
    batch = {"Isomer": throughput_by_batch(isomer, options)}
    if options.llama_bench:
        peer = [options.llama_bench, *common, "-o", "json"]
        decode["llama.cpp"] = decode_by_context(peer, options, lambda tokens: [])
        prefill["llama.cpp"] = prefill_by_length(peer, options, lambda tokens: [])

    os.makedirs(options.output, exist_ok=True)
    name = os.path.basename(options.model.rstrip("/"))
    report = f"# Scaling of {name}\n\n{time.strftime('%Y-%m-%d')}, {options.device}, " \
             f"{options.threads} threads; tokens/s.\n"
    for file, title, x_name, series in (
            ("decode", "Decode against context", "tokens in the context", decode),
            ("prefill", "Prefill against prompt length", "prompt tokens", prefill),
            ("batch", "Throughput against batch", "sequences", batch)):
        plot.lines(os.path.join(options.output, file + ".svg"), title, x_name, "tokens/s", series,
                   log_x=True)
        report += table(title, x_name, series) + f"\n![{title}]({file}.svg)\n"
    with open(os.path.join(options.output, "report.md"), "w") as out:
        out.write(report)
    print(report)


if __name__ == "__main__":
    main()
