"""`isomer bench`: llama-bench's tests, columns and field names."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import isomer


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        cls.made = isomer.run_json("synth", "tiny-llama", cls.model, "--scheme", "q8_0")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def bench(self, *arguments):
        return isomer.run_json("bench", self.model, "-t", 1, *arguments)

    def rows(self, *arguments):
        lines = isomer.run("bench", self.model, "-r", 1, "-t", 1, *arguments).stdout.splitlines()
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    def test_table(self):
        header, rule, *rows = self.rows("-p", "16", "-n", "4")
        self.assertEqual(header, ["model", "size", "params", "backend", "threads", "test", "t/s"])
        self.assertTrue(all(re.fullmatch("-+:?", cell) for cell in rule))
        self.assertEqual([row[5] for row in rows], ["pp16", "tg4"])
        for row in rows:
            self.assertEqual(row[0], "llama 1M Q8_0")
            self.assertEqual(row[2], f"{self.made['n_params'] / 1e6:.2f} M")
            self.assertRegex(row[6], r"^\d+\.\d\d ± \d+\.\d\d$")

    def test_lists_make_a_test_each(self):
        names = [row[5] for row in self.rows("-p", "16,8", "-p", "24", "-n", "2,3", "-d", "5")[2:]]
        self.assertEqual(names, ["pp16 @ d5", "pp8 @ d5", "pp24 @ d5", "tg2 @ d5", "tg3 @ d5"])
        self.assertEqual([row[5] for row in self.rows("-p", "0", "-n", "2", "--batch", "3")[2:]],
                         ["tg2 x 3"])

    def test_defaults_are_llama_benchs(self):
        found = self.bench("-r", 1)
        self.assertEqual([(test["n_prompt"], test["n_gen"]) for test in found],
                         [(512, 0), (0, 128)])

    def test_json(self):
        found = self.bench("-p", 16, "-n", 4, "-r", 3, "-d", 2, "-t", 1, "-b", 8)
        self.assertEqual(len(found), 2)
        for test, tokens in zip(found, (16, 4)):
            self.assertEqual((test["n_depth"], test["n_threads"], test["n_batch"]), (2, 1, 8))
            self.assertEqual(test["model_filename"], self.model)
            self.assertEqual(test["model_size"], self.made["tensor_bytes"])
            self.assertEqual(test["model_n_params"], self.made["n_params"])
            self.assertEqual(test["type_k"], "f32")
            self.assertEqual(len(test["samples_ns"]), 3)
            mean = sum(test["samples_ns"]) / 3
            self.assertAlmostEqual(test["avg_ns"], mean, delta=1)
            deviation = (sum((ns - mean) ** 2 for ns in test["samples_ns"]) / 2) ** 0.5
            self.assertAlmostEqual(test["stddev_ns"], deviation, delta=1)
            for ns, speed in zip(test["samples_ns"], test["samples_ts"]):
                self.assertAlmostEqual(speed, tokens * 1e9 / ns, delta=speed * 1e-6)
            self.assertRegex(test["test_time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            for key in ("build_commit", "cpu_info", "model_type", "avg_ts", "stddev_ts"):
                self.assertIn(key, test)

    def test_batch_counts_tokens_of_all_sequences(self):
        (found,) = self.bench("-p", 0, "-n", 4, "--batch", 6, "-r", 1)
        self.assertAlmostEqual(found["avg_ts"] * found["avg_ns"], 24e9, delta=24e3)

    def test_json_of_a_bench_that_ends_early(self):
        for kernels in ([], ["--kernels"]):
            process = subprocess.Popen([isomer.BINARY, "bench", self.model, "-p", "8", "-n", "1000", "-r", "10000", "--json", *kernels],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1)
            found = json.loads(output)
            error = (found[-1] if isinstance(found, list) else found)["error"]
            self.assertIn(error, errors)

    def test_kernels(self):
        decode, prompt = self.bench("-p", 32, "-n", 1, "-d", 8, "--kernels", "-r", 1)
        self.assertIn("decode", decode["step"])
        self.assertIn("prompt step of 32", prompt["step"])
        for step in (decode, prompt):
            kernels = {row["op"]: row for row in step["kernels"]}
            products = sum(row["count"] for row in step["kernels"] if row["op"] == "matmul")
            self.assertEqual(products, 7 * 2 + 1)  # two layers and the head
            self.assertGreater(kernels["matmul"]["gb_per_s"], 0)
            self.assertNotIn("gb_per_s", kernels["rms_norm"])
            total = sum(row["total_us"] for row in step["kernels"])
            self.assertGreater(total, 0)
            self.assertLess(step["core_overhead_percent"] or 0, 100)  # null where waiting is most of it

    def test_kernels_table(self):
        text = isomer.run("bench", self.model, "-p", 8, "-n", 1, "--kernels", "-r", 1,
                          "-t", 1).stdout
        self.assertRegex(text, r"\| matmul +\| matmul\.\S+ +\| +\d+ \|")
        self.assertRegex(text, r"core overhead -?\d+\.\d%|each is waited for")

    def test_wrong_lengths(self):
        for arguments in (("-p", "x"), ("-p", "1,,2"), ("-n", "-3"), ("-p", "0", "-n", "0")):
            done = isomer.run("bench", self.model, *arguments, code=2)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_peers(self):
        """The comparison, against Isomer itself under llama-bench's way of asking for JSON, which
        refuses one of the files."""
        peer = os.path.join(self.folder.name, "llama-bench")
        with open(peer, "w") as file:
            file.write(f"#!{sys.executable}\nimport os, sys\nwords = sys.argv[1:]\n"
                       "at = words.index('-o')\nassert words[at + 1] == 'json'\n"
                       "words[at:at + 2] = ['--json']\n"
                       "if any('f16' in word for word in words):\n    sys.exit(3)\n"
                       f"os.execv({isomer.BINARY!r}, ['isomer', 'bench', *words])\n")
        os.chmod(peer, 0o755)
        report = os.path.join(self.folder.name, "results", "report.md")
        done = subprocess.run([sys.executable, os.path.join(isomer.SOURCE, "bench", "peers.py"),
                               "--isomer", isomer.BINARY, "--llama-bench", peer, "--no-smollm2",
                               "--shape", "tiny-llama", "--schemes", "q4_0,q4_k_m,f16", "--models",
                               self.folder.name, "-p", "16", "-n", "4", "-r", "2", "-t", "1",
                               "--isomer-options", "--activation int8", "--output", report],
                              check=True, capture_output=True, text=True, timeout=300)
        self.assertRegex(done.stderr, "llama.cpp is left out: .*tiny-llama-f16.gguf.* failed with 3")
        self.assertEqual(len(re.findall(r"^  \S+: pp [\d.]+, tg [\d.]+ tokens/s$", done.stderr, re.M)), 5)
        with open(report) as file:
            text = file.read()
        for label in ("tiny-llama Q4_0", "tiny-llama Q4_K_M"):
            self.assertRegex(text, rf"\| {label} \| [\d.]+ \| [\d.]+ \| \*\*[\d.]+\*\* \|")
            self.assertRegex(text, rf"\| {label} \| 1 MB \| \d+ MB \| \d+ MB \| [\d.]+ s \|")
        self.assertRegex(text, r"\| tiny-llama F16 \| [\d.]+ \|  \|  \| [\d.]+ \|  \|  \|")
        self.assertIn("Isomer ran with `--activation int8`", text)


if __name__ == "__main__":
    isomer.main()
