#!/usr/bin/env python3
"""The real SmolLM2-135M-Instruct through the command: greedy text equal to transformers', chat
template, streams, Ctrl-C, odd prompts.   test_smollm2.py PATH_TO_ISOMER"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ISOMER = sys.argv[1]
MODEL = os.environ.get("ISOMER_TEST_SMOLLM2")
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "smollm2" / "greedy.json"


def run(*arguments, **options):
    return subprocess.run([ISOMER, *arguments], capture_output=True, timeout=300, **options)


def check_greedy(cases, **environment):
    for case in cases:
        done = run("run", MODEL, "-p", case["prompt"], "-n", str(len(case["output_ids"])),
                   "--temp", "0", "--json", env=dict(os.environ, **environment))
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["n_prompt"] == len(case["prompt_ids"]), "the chat template gives other tokens"
        assert answer["text"] == case["text"], f"{case['prompt']}:\n{answer['text']}\n{case['text']}"


def tiers():
    """The instruction tiers that this machine has, the default last."""
    for tier in ("baseline", "avx2", "avx512", "amx"):
        listed = run("devices", "--json", env=dict(os.environ, ISOMER_CPU_ISA=tier)).stdout
        if any(row.get("device") == "cpu:0" for row in json.loads(listed)):
            yield tier
        else:
            print(f"tier {tier}: this machine lacks it")


def test_greedy_text_equals_transformers():
    cases = json.loads(GOLDEN.read_text())
    assert len(cases) == 10
    for tier in tiers():
        for case in cases[:3] if tier == "baseline" else cases:
            done = run("run", MODEL, "-p", case["prompt"], "-n", str(len(case["output_ids"])), "--temp", "0",
                       "--json", env=dict(os.environ, ISOMER_CPU_ISA=tier))
            assert done.returncode == 0, done.stderr
            answer = json.loads(done.stdout)
            assert answer["n_prompt"] == len(case["prompt_ids"]), "the chat template gives other tokens"
            assert answer["text"] == case["text"], (tier, case["prompt"], answer["text"], case["text"])


def test_prompt_tokens_equal_transformers():
    for case in json.loads(GOLDEN.read_text()):
        done = run("tokenize", MODEL, "--json", "-p", case["prompt"])
        ids = json.loads(done.stdout)
        golden = case["prompt_ids"]
        assert any(golden[i:i + len(ids)] == ids for i in range(len(golden))), (ids, golden)


def test_same_seed_same_text():
    texts = {run("run", MODEL, "-p", "Tell me a joke", "-n", "24", "--seed", "7").stdout for _ in range(2)}
    assert len(texts) == 1, texts


def test_threads_and_chunks_do_not_change_the_text():
    expected = run("run", MODEL, "-p", "Count to ten.", "-n", "24", "--temp", "0").stdout
    assert expected.strip()
    for extra in (["-t", "1"], ["-b", "7"], ["--kv-type", "f16"], ["--speculation", "ngram"]):
        assert run("run", MODEL, "-p", "Count to ten.", "-n", "24", "--temp", "0", *extra).stdout == expected, extra


def test_odd_prompts():
    for prompt in ("🤷🏽‍♀️ e\u0301 שלום", " ", "\n\n\n", "<|im_end|>", "a" * 3000):
        done = run("run", MODEL, "-p", prompt, "-n", "4", "--temp", "0")
        assert done.returncode == 0, (prompt, done.stderr)
        done.stdout.decode("utf-8")


def test_invalid_utf8_prompt():
    done = run("run", MODEL, "--raw", "-p", b"caf\xc3", "-n", "4", "--temp", "0")
    assert done.returncode == 0, done.stderr
    done.stdout.decode("utf-8")


def test_prompt_beyond_the_context():
    done = run("run", MODEL, "-p", "word " * 300, "-c", "128")
    assert done.returncode == 1 and b"context" in done.stderr and done.stderr.count(b"\n") == 1, done.stderr


def test_context_limit_ends_with_length():
    done = run("run", MODEL, "--raw", "-p", "Once upon a time", "-c", "32", "--temp", "0", "--json")
    answer = json.loads(done.stdout)
    assert answer["finish_reason"] in ("length", "stop"), answer
    assert answer["n_prompt"] + answer["n_output"] <= 33, answer


def test_stop_string_is_not_shown():
    whole = run("run", MODEL, "-p", "Why is the sky blue?", "-n", "40", "--temp", "0").stdout.decode()
    words = whole.split()
    stop = " ".join(words[5:7])
    cut = run("run", MODEL, "-p", "Why is the sky blue?", "-n", "40", "--temp", "0", "--stop", stop).stdout.decode()
    assert cut.rstrip("\n") == whole[:whole.index(stop)], (cut, whole)


def test_interrupt_ends_the_answer():
    process = subprocess.Popen([ISOMER, "run", MODEL, "-p", "Write a long story.", "--temp", "0"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, (process.returncode, errors)
    assert time.monotonic() - start < 30


def test_closed_pipe_is_an_error_not_a_crash():
    process = subprocess.Popen([ISOMER, "run", MODEL, "-p", "Write a long story.", "--temp", "0"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    process.wait(timeout=60)
    assert process.returncode in (1, -signal.SIGPIPE), (process.returncode, errors)


def test_usage_errors_exit_with_2():
    for arguments in (["run"], ["run", MODEL, "--tempp", "1"], ["run", MODEL, "-p", "x", "--top-p", "7"],
                      ["runn"], ["run", MODEL, "-p", "x", "--split", "3,4,5"]):
        done = run(*arguments, stdin=subprocess.DEVNULL)
        assert done.returncode == 2, (arguments, done)
        assert done.stderr.count(b"\n") == 1 and not done.stdout, (arguments, done)
    assert b"--temp?" in run("run", MODEL, "--tempp", "1").stderr


def test_absent_device_is_named():
    done = run("run", MODEL, "-p", "x", "--device", "cuda:0")
    assert done.returncode in (1, 2)
    assert b"cuda" in done.stderr and done.stderr.count(b"\n") == 1, done.stderr


def main():
    if not MODEL:
        print("skipped: ISOMER_TEST_SMOLLM2 does not name the model; scripts/test sets it")
        sys.exit(77)
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    for test in tests:
        start = time.monotonic()
        test()
        print(f"{test.__name__}: ok ({time.monotonic() - start:.1f} s)", flush=True)


main()
