#!/usr/bin/env python3
"""Isomer beside llama.cpp and OpenVINO GenAI: the same files, the same tests, alternating runs.

    bench/peers.py --llama-bench ~/llama.cpp/build/bin/llama-bench --output bench/results/box.md

Peers are those that are there: llama-bench, or else PyPI's llama-cpp-python, and PyPI's
openvino-genai, which opens some schemes only. They take activations in 8 bits, which Isomer does
when asked to: --isomer-options '--activation int8'. Files are SmolLM2-135M (scripts/fetch-model) and random weights of one shape in several schemes
(isomer synth). Runs alternate, so that a clock that drifts or a neighbour that wakes meets both;
medians are over the rounds. See bench/README.md.
"""
import argparse
import importlib.util
import json
import mmap
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import time

import machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Failed(Exception):
    """What a command failed with, in a line."""


def run(command):
    """Runs a command to its end: (stdout, seconds, peak resident bytes)."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    output = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Failed(f"{' '.join(command)} failed with {process.returncode}; run it alone to see why")
    return output, time.monotonic() - start, usage.ru_maxrss * 1024


class BenchCommand:
    """A program that speaks llama-bench's options and JSON."""

    def __init__(self, name, command, json_option):
        self.name, self.command, self.json_option = name, command, json_option

    def measure(self, path, options, n_prompt, n_gen):
        """{"pp": t/s, "tg": t/s, "rss": bytes, "wall": s}; a length of 0 leaves its test out."""
        command = [*self.command, "-m", path, "-p", str(n_prompt), "-n", str(n_gen), "-r", "1",
                   "-t", str(options.threads), *self.json_option]
        output, wall, rss = run(command)
        result = {"rss": rss, "wall": wall}
        for row in json.loads(output):
            result["pp" if row["n_prompt"] else "tg"] = row["avg_ts"]
        return result


def llama_cpp_python_worker(path, n_threads, n_prompt, n_gen):
    """The two tests through PyPI's llama-cpp-python, printed as llama-bench prints them."""
    import llama_cpp

    model = llama_cpp.Llama(path, n_ctx=max(n_prompt, n_gen) + 1, n_batch=512, n_threads=n_threads,
                            n_threads_batch=n_threads, verbose=False)
    draw = random.Random(1)
    rows = []
    for prompt, gen in ((n_prompt, 0), (0, n_gen)):
        if prompt + gen == 0:
            continue
        for timed in (False, True):
            model.reset()
            start = time.perf_counter()
            if prompt:
                model.eval([draw.randrange(model.n_vocab()) for _ in range(prompt)])
            for _ in range(gen if timed else min(gen, 1)):
                model.eval([draw.randrange(model.n_vocab())])
            seconds = time.perf_counter() - start
        rows.append({"n_prompt": prompt, "n_gen": gen, "avg_ts": (prompt + gen) / seconds})
    print(json.dumps(rows))


def openvino_worker(path, n_threads, n_prompt, n_gen):
    """The two tests through PyPI's openvino-genai: the first token's time, and that between others."""
    import numpy
    import openvino
    import openvino_genai

    pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=n_threads)
    draw = numpy.random.default_rng(1)

    def generate(n_ids, n_tokens):
        # Prompts are new each time: prefixes are cached.
        ids = draw.integers(100, 40000, (1, n_ids), dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids),
                                                openvino.Tensor(numpy.ones_like(ids)))
        return pipeline.generate(inputs, max_new_tokens=n_tokens, ignore_eos=True,
                                 do_sample=False).perf_metrics
    rows = []
    if n_prompt:
        generate(n_prompt, 1)
        rows.append({"n_prompt": n_prompt, "n_gen": 0,
                     "avg_ts": 1e3 * n_prompt / generate(n_prompt, 1).get_ttft().mean})
    if n_gen:
        generate(8, 2)
        rows.append({"n_prompt": 0, "n_gen": n_gen,
                     "avg_ts": 1e3 / generate(8, n_gen + 1).get_tpot().mean})
    print(json.dumps(rows))


WORKERS = {"llama_cpp": llama_cpp_python_worker, "openvino": openvino_worker}


class PythonBinding(BenchCommand):
    def __init__(self, name, worker):
        super().__init__(name, [], [])
        self.worker = worker

    def measure(self, path, options, n_prompt, n_gen):
        output, wall, rss = run([sys.executable, os.path.abspath(__file__), "--worker", self.worker,
                                 path, str(options.threads), str(n_prompt), str(n_gen)])
        result = {"rss": rss, "wall": wall}
        for row in json.loads(output):
            result["pp" if row["n_prompt"] else "tg"] = row["avg_ts"]
        return result


def find_peers(options):
    peers = []
    if options.llama_bench:
        peers.append(BenchCommand("llama.cpp", [options.llama_bench], ["-o", "json"]))
    elif importlib.util.find_spec("llama_cpp"):
        peers.append(PythonBinding("llama.cpp (llama-cpp-python)", "llama_cpp"))
    if importlib.util.find_spec("openvino_genai"):
        peers.append(PythonBinding("OpenVINO GenAI", "openvino"))
    if not peers:
        sys.exit("peers.py: nothing to compare with: give --llama-bench PATH, or pip install "
                 "llama-cpp-python or openvino-genai")
    return peers


def machine_limits(options):
    """bench/limits' table: what the machine could do while this was measured."""
    if not os.path.exists(options.limits):
        sys.exit(f"peers.py: no {options.limits}: build it with ninja -C build/release limits, "
                 "or name it with --limits")
    print("measuring the machine", file=sys.stderr)
    output, _, _ = run([options.limits, "-t", str(options.threads)])
    return output


def read_bandwidth(limits):
    """Bytes/s that all threads read, by the last number of a row of bench/limits' table."""
    return 1e9 * float(re.search(r"^\| memory, read .*\| *([0-9.]+) \|$", limits, re.M)[1])


def bytes_of_a_step(path, options):
    """Bytes of weights that decoding one token reads: all but a table of embeddings of its own."""
    output, _, _ = run([options.isomer, "inspect", path, "--tensors", "--json"])
    model = json.loads(output)
    return sum(tensor["bytes"] for tensor in model["tensors"]
               if model["tied_embeddings"] or tensor["name"] != "token_embd.weight")


def prepare_files(options):
    """[(label, path)]; makes what is missing."""
    files = []
    if not options.no_smollm2:
        output, _, _ = run([os.path.join(ROOT, "scripts", "fetch-model"), "smollm2"])
        files.append(("SmolLM2-135M Q4_1", output.split()[-1]))
    os.makedirs(options.models, exist_ok=True)
    for scheme in filter(None, options.schemes.split(",")):
        path = os.path.join(options.models, f"{options.shape}-{scheme}.gguf")
        if not os.path.exists(path):
            print(f"writing {path}", file=sys.stderr)
            run([options.isomer, "synth", options.shape, path, "--scheme", scheme])
        files.append((f"{options.shape} {scheme.upper()}", path))
    return files + [(os.path.basename(path), path) for path in options.files]


def read_once(path):
    """Seconds to read the file into memory from the page cache, where an earlier read has put it.
    The memory is fresh, as a loader's is: the kernel clears its pages in this time."""
    for _ in range(2):
        with mmap.mmap(-1, os.path.getsize(path)) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            start = time.monotonic()
            with open(path, "rb", buffering=0) as file, memoryview(memory) as view:
                done = 0
                while count := file.readinto(view[done:done + (8 << 20)]):
                    done += count
            seconds = time.monotonic() - start
    return seconds


def can_run(engine, path, options):
    """Whether a peer opens the file; that Isomer does is not asked."""
    try:
        engine.measure(path, options, 1, 1)
        return True
    except Failed as failure:
        print(f"peers.py: {engine.name} is left out: {failure}", file=sys.stderr)
        return False


def compare(path, engines, options):
    """One file: medians of each engine that runs it over the rounds, and their start-up times."""
    engines = engines[:1] + [peer for peer in engines[1:] if can_run(peer, path, options)]
    read_seconds = 0 if options.speed_only else read_once(path)
    samples = {engine.name: {"pp": [], "tg": [], "rss": [], "start": []} for engine in engines}
    for round_number in range(options.rounds):
        # The first to run changes from round to round, too.
        for engine in engines if round_number % 2 == 0 else engines[::-1]:
            found = engine.measure(path, options, options.n_prompt, options.n_gen)
            for key in ("pp", "tg", "rss"):
                samples[engine.name][key].append(found[key])
            if options.speed_only:
                continue
            # What is left of a run of one token, measured and warmed up, is loading.
            found = engine.measure(path, options, 1, 0)
            samples[engine.name]["start"].append(found["wall"] - 2 / found["pp"])
    medians = {name: {key: statistics.median(values) for key, values in of_engine.items() if values}
               for name, of_engine in samples.items()}
    return read_seconds, medians


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |",
             "|---" + "|---:" * (len(header) - 1) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def tier_in_force():
    tier = os.environ.get("ISOMER_CPU_ISA")
    return f"; Isomer is held to tier {tier}" if tier else ""


def beside(ours, theirs, digits):
    """Cells of a peer's speed and of the ratio to it; `theirs` is None where it did not run."""
    return [f"{theirs:.{digits}f}", f"**{ours / theirs:.2f}**"] if theirs else ["", ""]


def report(results, engines, limits, options):
    ours, peers = engines[0].name, [engine.name for engine in engines[1:]]
    speed, memory = [], []
    for label, path, (read_seconds, medians) in results:
        us, of_peers = medians[ours], [medians.get(peer, {}) for peer in peers]
        share = us["tg"] * bytes_of_a_step(path, options) / read_bandwidth(limits)
        row = [label]
        for test, digits in (("pp", 1), ("tg", 2)):
            row.append(f"{us[test]:.{digits}f}")
            for them in of_peers:
                row += beside(us[test], them.get(test), digits)
        speed.append(row + [f"{100 * share:.0f}%"])
        if options.speed_only:
            continue
        them_all = [us, *of_peers]
        memory.append([label, f"{os.path.getsize(path) / 1e6:.0f} MB",
                       *(f"{them['rss'] / 1e6:.0f} MB" if them else "" for them in them_all),
                       f"{read_seconds:.2f} s",
                       *(f"{them['start']:.2f} s" if them else "" for them in them_all)])
    head = ["model"]
    for test in f"pp{options.n_prompt}", f"tg{options.n_gen}":
        head.append(f"{test} {ours}")
        for peer in peers:
            head += [f"{test} {peer}", "ratio"]
    lines = [f"# {ours} beside {' and '.join(peers)}", "",
             f"{time.strftime('%Y-%m-%d')}, {options.threads} threads, medians of {options.rounds} "
             "alternating rounds, tokens/s; a ratio above 1 says that Isomer is faster. The last "
             "column is the weights that generation reads a second, by their size in the file, as "
             "a share of what memory gave to plain reads." +
             (f" Isomer ran with `{options.isomer_options}`." if options.isomer_options else ""), "",
             machine.describe() + tier_in_force(), "", limits]
    lines += table(head + [f"{ours} reads"], speed)
    if memory:
        lines += ["", "Peak resident memory (mapped files count), and the time to start: to load "
                  "the model, beside the time to read its file once from the page cache into fresh "
                  "memory.", ""]
        everyone = [ours, *peers]
        lines += table(["model", "file", *(f"memory {name}" for name in everyone), "read once",
                        *(f"start {name}" for name in everyone)], memory)
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker, path, *numbers = sys.argv[2:]
        return WORKERS[worker](path, *map(int, numbers))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", help="more GGUF files to compare on")
    parser.add_argument("--isomer", default=os.path.join(ROOT, "build", "release", "isomer"))
    parser.add_argument("--llama-bench", help="llama.cpp's llama-bench; else llama-cpp-python")
    parser.add_argument("--limits", default=os.path.join(ROOT, "build", "release", "bench", "limits"),
                        help="bench/limits, whose numbers come first in the report")
    parser.add_argument("--shape", default="llama3.2-1b", help="shape of the random weights")
    parser.add_argument("--schemes", default="bf16,q8_0,q4_0,q4_k_m", help="'' for none")
    parser.add_argument("--models", default=os.path.join(cache, "isomer", "bench"),
                        help="folder that random weights are kept in")
    parser.add_argument("--no-smollm2", action="store_true", help="leave the real model out")
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=64)
    parser.add_argument("-t", "--threads", type=int, default=machine.physical_cores())
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--speed-only", action="store_true", help="leave memory and starting out")
    parser.add_argument("--isomer-options", default="", metavar="WORDS",
                        help="more options of isomer bench, as in '--activation int8'")
    parser.add_argument("--output", help="write the report to this file as well")
    options = parser.parse_args()
    # llama.cpp's cache is f16 by default.
    ours = [options.isomer, "bench", "--kv-type", "f16", *shlex.split(options.isomer_options)]
    engines = [BenchCommand("Isomer", ours, ["--json"]), *find_peers(options)]
    limits, results = machine_limits(options), []
    for label, path in prepare_files(options):
        print(f"measuring {label}", file=sys.stderr)
        results.append((label, path, compare(path, engines, options)))
        for name, found in results[-1][2][1].items():  # so that a run cut short is worth something
            print(f"  {name}: pp {found['pp']:.1f}, tg {found['tg']:.2f} tokens/s", file=sys.stderr)
    text = report(results, engines, limits, options)
    print(text, end="")
    if options.output:
        os.makedirs(os.path.dirname(os.path.abspath(options.output)), exist_ok=True)
        with open(options.output, "w") as file:
            file.write(text)


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"peers.py: {failed}")
