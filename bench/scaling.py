#!/usr/bin/env python3
"""How speed changes as work grows: decode against context, prefill against prompt length,
throughput against batch. One SVG a question and a table with the numbers.

    bench/scaling.py model.gguf --output bench/results/NAME [--llama-bench PATH/llama-bench]

The peer is measured where its program can ask the same question. Every point is kept in
numbers.json as it is measured; a run that finds some there measures the others, so that one that
was stopped goes on and plots can be drawn on another machine. See bench/README.md."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = "llama.cpp"


def run(*command):
    """The median of a test's samples, in tokens/s."""
    print("+", *command, file=sys.stderr)
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return statistics.median(rows[-1]["samples_ts"])


def numbers(text):
    return [int(number) for number in text.split(",") if number]


def questions(options):
    """(file, title, name of x, its values, whether the peer is asked, what both are asked)."""
    n_gen = str(options.n_gen)
    return (
        ("decode", "Decode against context", "tokens in the context", options.contexts, True,
         lambda depth: ["-p", "0", "-n", n_gen, "-d", str(depth)]),
        ("prefill", "Prefill against prompt length", "prompt tokens", options.prompts, True,
         lambda length: ["-p", str(length), "-n", "0"]),
        ("batch", "Throughput against batch", "sequences", options.batches, False,
         lambda batch: ["-p", "0", "-n", n_gen, "--batch", str(batch)]))


def programs_of(options):
    common = ["-m", options.model, "-t", str(options.threads), "-r", str(options.repetitions)]
    programs = {"Isomer": [options.isomer, "bench", *common, "--device", options.device,
                           "--kv-type", options.kv_type, "--json"]}
    if options.llama_bench:
        programs[PEER] = [options.llama_bench, *common, "-ctk", options.kv_type,
                          "-ctv", options.kv_type, "-o", "json"]
    return programs


def measure(found, values, programs, ask, save):
    """Adds what is missing to {program: {x: tokens/s}}. Programs alternate, so that a neighbour
    that wakes meets all."""
    for value in values:
        for name, program in programs.items():
            points = found.setdefault(name, {})
            if str(value) not in points:
                points[str(value)] = run(*program, *ask(value))
                save()


def table(title, x_name, series):
    xs = sorted({int(x) for points in series.values() for x in points})
    out = [f"\n## {title}\n", "| " + " | ".join([x_name, *series]) + " |",
           "|---:" * (1 + len(series)) + "|"]
    for x in xs:
        values = [points.get(str(x)) for points in series.values()]
        out.append(f"| {x} | " + " | ".join("" if v is None else f"{v:.1f}" for v in values) + " |")
    return "\n".join(out) + "\n"


def report(data, options):
    """Writes the table and the plots, where there is something to draw them with."""
    try:
        import plot
    except SystemExit as missing:
        print(f"{missing}; run this again there to draw", file=sys.stderr)
        plot = None
    text = f"# Scaling of {data['model']}\n\n{data['about']}\n"
    for file, title, x_name, *_ in questions(options):
        if file not in data:
            continue
        series = {name: [(int(x), y) for x, y in points.items()]
                  for name, points in data[file].items()}
        if plot:
            plot.lines(os.path.join(options.output, file + ".svg"), title, x_name, "tokens/s",
                       series, log_x=True)
        text += table(title, x_name, data[file]) + f"\n![{title}]({file}.svg)\n"
    with open(os.path.join(options.output, "report.md"), "w") as out:
        out.write(text)
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--output", required=True, help="folder for report.md and the plots")
    parser.add_argument("--isomer", default=os.path.join(ROOT, "build", "release", "isomer"))
    parser.add_argument("--llama-bench", help="measure llama.cpp too")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kv-type", default="f16", help="type of the key-value cache, for both")
    parser.add_argument("-t", "--threads", type=int, default=machine.physical_cores())
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-n", "--n-gen", type=int, default=16, help="tokens of a decode sample")
    parser.add_argument("--contexts", type=numbers, default=numbers("128,512,2048,8192,32768"))
    parser.add_argument("--prompts", type=numbers, default=numbers("32,128,512,2048"))
    parser.add_argument("--batches", type=numbers, default=numbers("1,2,4,8,16,32,64"))
    options = parser.parse_args()

    os.makedirs(options.output, exist_ok=True)
    path = os.path.join(options.output, "numbers.json")
    data = {"model": os.path.basename(options.model.rstrip("/")),
            "about": f"{time.strftime('%Y-%m-%d')}, {machine.describe()}; {options.device}, "
                     f"{options.threads} threads, {options.kv_type} cache; tokens/s, medians of "
                     f"{options.repetitions}."}
    if os.path.exists(path):
        with open(path) as file:
            data = json.load(file)

    def save():
        with open(path, "w") as file:
            json.dump(data, file, indent=1)

    programs = programs_of(options)
    for file, _, _, values, ask_peer, ask in questions(options):
        asked = {name: programs[name] for name in programs if ask_peer or name != PEER}
        if values:
            measure(data.setdefault(file, {}), values, asked, ask, save)
    report(data, options)


if __name__ == "__main__":
    main()
