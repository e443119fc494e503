#!/usr/bin/env python3
"""What the engine costs and brings: raw batched decode beside the same rows as requests, drafts on a
prompt that repeats itself and on random text, the prefix cache where nothing is shared.

    bench/engine.py build/release/isomer model.gguf

Runs alternate, medians are over the rounds. With --processor-time, for machines that others use too,
what counts is the processor time of three times the work less that of it once, on one thread: neither
loading nor waiting is in it. Rounds are alike when texts and tries of drafts are. See bench/README.md.
"""
import argparse
import json
import pathlib
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile

TEXT = ("The river Elbe rises in the Giant Mountains of the northern Czech Republic before traversing much "
        "of Bohemia, then Germany, and flowing into the North Sea at Cuxhaven, 110 kilometres northwest of "
        "Hamburg. Its total length is 1,094 kilometres. The Elbe's major tributaries include the rivers "
        "Vltava, Ohre, Saale, Havel, Mulde, and Schwarze Elster. The Elbe river basin has a total catchment "
        "area of 148,268 square kilometres, the twelfth largest in Europe.")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("isomer")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where to run: cpu, cuda:0 ...")
    parser.add_argument("--draft-model", metavar="MODEL", help="for drafts of a smaller model too")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases whose names match, as in 'raw|greedy'")
    parser.add_argument("--processor-time", action="store_true", help="tokens a second of it, on one thread")
    return parser.parse_args()


def print_table(arguments, results):
    print(f"{pathlib.Path(arguments.model).name}, {arguments.sequences} sequences of {arguments.tokens} tokens, "
          f"medians of {arguments.rounds} rounds\n")
    unit = "output tokens/s of processor time" if arguments.processor_time else "output tokens/s"
    print(f"| {unit} | median | from | to | drafts that came true | rounds alike |\n"
          "| --- | ---: | ---: | ---: | ---: | --- |")
    for name, done in results.items():
        rates = [rate for rate, _ in done]
        brought = [what for _, what in done if what]
        counts = sorted({drafts for _, drafts in brought} - {"0 of 0"})
        alike = "" if not brought else "yes" if all(what == brought[0] for what in brought) else "no"
        print(f"| {name} | {statistics.median(rates):.1f} | {min(rates):.1f} | {max(rates):.1f} | {', '.join(counts)} "
              f"| {alike} |")


def main():
    arguments = read_arguments()
    n, tokens = arguments.sequences, arguments.tokens
    threads = 1 if arguments.processor_time else arguments.threads

    def run(*words):
        done = subprocess.run([arguments.isomer, *map(str, words), "-t", str(threads), "--device", arguments.device],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{shlex.join(done.args)}: {done.stdout[:500]}{done.stderr}")
        return done

    def by_processor(work):
        """Tokens a second of processor time of work(times), which returns how many there were."""
        done = []
        for times in (1, 3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            count = work(times)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            done.append((count, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        return (done[1][0] - done[0][0]) / (done[1][1] - done[0][1])

    def raw():
        def work(times):
            run("bench", arguments.model, "--batch", n, "-p", "0", "-n", tokens * times, "-r", "1")
            return n * tokens * times
        if arguments.processor_time:
            return by_processor(work), None
        done = run("bench", arguments.model, "--batch", n, "-p", "0", "-n", tokens, "-r", "1", "--json")
        return json.loads(done.stdout)[0]["avg_ts"], None

    def batch(lines, *options):
        """Tokens a second, and what a run brought: its texts, and with drafts how many came true."""
        def work(times):
            # Of many at once longer answers; of one after another the same again.
            repeated = (lines * times if one[1] in options
                        else [dict(line, max_tokens=line["max_tokens"] * times) for line in lines])
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as source:
                source.write("".join(json.dumps(line) + "\n" for line in repeated))
                source.flush()
                done.append(run("batch", arguments.model, source.name, "-c", "1024", "--kv-memory", "4000", "-v",
                                *options))
            return int(re.search(r"(\d+) output tokens in", done[-1].stderr).group(1))
        done = []
        if arguments.processor_time:
            return by_processor(work), None
        work(1)
        texts = sorted((json.loads(line) for line in done[-1].stdout.splitlines()), key=lambda answer: answer["index"])
        brought = [answer["text"] for answer in texts], re.search(r"(\d+ of \d+) drafts", done[-1].stderr).group(1)
        return float(re.search(r"([\d.]+) output tokens/s", done[-1].stderr).group(1)), brought

    one = ("--max-sequences", "1")
    again = 4  # requests, one after another, as a server has them: the prompt's time counts once
    many = [{"prompt": f"Once {i}", "max_tokens": tokens, "ignore_end": True, "seed": i} for i in range(n)]
    greedy = [dict(line, temperature=0) for line in many]
    plain = [dict(line, temperature=1, top_k=0, top_p=1, min_p=0) for line in many]
    repeats = [{"src": "Repeat this text word for word, then summarise it:\n" + TEXT, "max_tokens": 200,
                "temperature": 0}] * again
    copies = [{"src": "Repeat this text word for word:\n" + TEXT, "max_tokens": 200, "temperature": 0}] * again
    wild = [{"prompt": "Once upon a time", "max_tokens": 200, "ignore_end": True, "temperature": 1.5,
             "top_k": 0, "top_p": 1, "min_p": 0, "seed": 3}] * again
    wide = ("--max-sequences", n)
    cases = {
        "raw decode (isomer bench)": raw,
        "requests, greedy": lambda: batch(greedy, *wide),
        "requests, temperature 0.8, top-k, top-p, min-p": lambda: batch(many, *wide),
        "requests, temperature 1, no filter": lambda: batch(plain, *wide),
        "requests, greedy, no prefix cache": lambda: batch(greedy, *wide, "--no-prefix-cache"),
        "one that repeats its prompt": lambda: batch(repeats, *one),
        "the same with n-gram drafts": lambda: batch(repeats, *one, "--speculation", "ngram"),
        "one that copies its prompt": lambda: batch(copies, *one),
        "that copy with n-gram drafts": lambda: batch(copies, *one, "--speculation", "ngram"),
        "one of random text": lambda: batch(wild, *one),
        "that with n-gram drafts": lambda: batch(wild, *one, "--speculation", "ngram"),
    }
    if arguments.draft_model:
        drafted = (*one, "--speculation", "draft", "--draft-model", arguments.draft_model)
        cases["that copy with drafts of a model"] = lambda: batch(copies, *drafted)
        cases["that random text with drafts of a model"] = lambda: batch(wild, *drafted)
    cases = {name: measure for name, measure in cases.items() if re.search(arguments.only, name)}
    results = {name: [] for name in cases}
    for _ in range(arguments.rounds):
        for name, measure in cases.items():
            results[name].append(measure())
    print_table(arguments, results)


main()
