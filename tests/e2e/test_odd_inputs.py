#!/usr/bin/env python3
"""What a user can do to the command: odd files, odd streams, odd numbers. It must end by itself, with one
sentence that says what is wrong.   test_odd_inputs.py PATH_TO_ISOMER"""
import json
import os
import resource
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import time
import unittest

import isomer
from serving import Server, tiny_model

COMMANDS = (("run", "-n", "2", "-p", "a"), ("inspect",), ("tokenize", "-p", "a"), ("serve", "--port", "0"),
            ("perplexity", "-f", "/etc/passwd"), ("bench", "-n", "1", "-p", "1", "-r", "1"))


def run(*arguments, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([isomer.BINARY, *arguments], stderr=subprocess.PIPE, timeout=120, **options)


class OddInputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isomer-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def refused(self, done, *words):
        self.assertIn(done.returncode, (1, 2), done)
        last = done.stderr.decode(errors="replace").splitlines()[-1]
        self.assertTrue(last.startswith("isomer: "), done)
        for word in words:
            self.assertIn(word.lower(), last.lower())

    def test_what_is_no_model(self):
        def place(name):
            return os.path.join(self.folder, name)
        open(place("empty.gguf"), "w").close()
        os.mkfifo(place("pipe.gguf"))
        os.symlink("loop.gguf", place("loop.gguf"))
        os.mkdir(place("folder.gguf"))
        with open(place("text.gguf"), "w") as file:
            file.write("hello")
        with open(place("cut.gguf"), "wb") as file, open(tiny_model(), "rb") as whole:
            file.write(whole.read(100000))
        with open(place("lfs.gguf"), "w") as file:
            file.write("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        for part in ("model.safetensors", "config.json"):
            open(place(part), "w").close()
        for name, word in (("empty.gguf", "empty"), ("pipe.gguf", "not a regular file"), ("loop.gguf", "symbolic links"),
                           ("folder.gguf", "a GGUF file is given by"), ("text.gguf", "GGUF"), ("cut.gguf", "complete"),
                           ("lfs.gguf", "git lfs pull"), ("missing.gguf", "no such file"), ("missing/", "no such file"),
                           ("model.safetensors", "give the folder"), ("config.json", "give the folder")):
            for command, *rest in COMMANDS:
                with self.subTest(name=name, command=command):
                    self.refused(run(command, place(name), *rest), word)
        self.refused(run("inspect", "/dev/zero"), "regular file")
        self.refused(run("inspect", ""), "model's path is empty")
        self.refused(run("inspect", "-m", ""), "model's path is empty")

    def test_tensors_that_are_missing(self):
        """All that is in a file is shown, and that it is not enough."""
        path = os.path.join(self.folder, "missing.gguf")
        with open(tiny_model(), "rb") as whole, open(path, "wb") as file:
            file.write(whole.read().replace(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight").replace(b"blk.1.ffn_up.", b"blk.1.ffn_xp."))
        missing = "the model has no tensor blk.0.attn_q.weight; 2 tensors of its architecture are missing in all"
        self.refused(run("run", path, "-p", "a"), missing)
        done = run("inspect", path)
        self.refused(done, "cannot be run: " + missing)
        self.assertIn(b"Memory for 1 sequence", done.stdout)
        self.assertEqual(json.loads(run("inspect", path, "--json").stdout)["problem"], missing)
        self.assertIsNone(isomer.run_json("inspect", tiny_model())["problem"])

    def test_weights_that_are_no_numbers(self):
        """In place of text without sense and scores that are no scores."""
        path = os.path.join(self.folder, "nan.gguf")
        with open(tiny_model(), "rb") as whole:
            data = bytearray(whole.read())
        middle = len(data) // 2 // 32 * 32  # inside of a matrix
        data[middle:middle + 2400] = struct.pack("<f", float("nan")) * 600
        with open(path, "wb") as file:
            file.write(data)
        for command, *rest in (("run", "-p", "a", "-n", "4", "--temp", "0"), ("run", "-p", "a", "-n", "4", "--raw"),
                               ("perplexity", "-f", __file__)):
            self.refused(run(command, path, *rest, "-c", "128"), "isomer verify")

    def test_names_that_are_not_utf8(self):
        path = os.path.join(os.fsencode(self.folder), b"m\xff\xfe.gguf")
        shutil.copy(tiny_model(), path)
        done = run("run", path, "-n", "2", "-p", b"\xff\xc3", "--raw")
        self.assertEqual(done.returncode, 0, done)
        for arguments in (("bench", path, "-p", "1", "-n", "0", "-r", "1"), ("inspect", path + b"\xe2\x82")):
            self.assertIn("\ufffd", json.dumps(json.loads(run(*arguments, "--json").stdout.decode()), ensure_ascii=False))
        with Server(model=path) as server:
            server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
            self.assertIn("\ufffd", server.get("/v1/models"))

    def test_prompts(self):
        for text in (b"", b"\xff", b"\xe2\x82", b" ", b"\n"):
            done = run("run", tiny_model(), "-n", "2", "--raw", "-p", text)
            self.assertIn(done.returncode, (0, 2), done)
            done = run("tokenize", tiny_model(), "-p", text)
            self.assertEqual(done.returncode, 0, done)

    def test_huge_numbers(self):
        for option in (["-c", str(1 << 30)], ["-b", str(1 << 20)], ["-t", "1024"], ["-n", str(1 << 30)], ["-c", "1"],
                       ["-t", "99999999999999999999"], ["-c", "-1"], ["-n", "0x"], ["--temp", "nan"], ["--temp", "1e999"],
                       ["--device", "cpu," * 100], ["--device", ""], ["--split", "1,-1"], ["--kv-type", ""],
                       ["--cpu-affinity", "0-99999999999"], ["--cpu-affinity", "5-1"], ["--cpu-affinity", ","]):
            with self.subTest(option):
                done = run("run", tiny_model(), "-p", "a", "--raw", *(["-n", "2"] if option[0] != "-n" else ["-c", "64"]), *option)
                self.assertIn(done.returncode, (0, 1, 2), done)
                if done.returncode:
                    self.refused(done)

    def test_options_without_effect(self):
        """What a command could only ignore it refuses."""
        requests = os.path.join(self.folder, "in.jsonl")
        with open(requests, "w") as file:
            file.write('{"src": "a", "max_tokens": 1}\n')
        model = tiny_model()
        for arguments in (["run", model, "-p", "a", "--raw", "--system", "b"], ["run", model, "-p", "a", "--draft-tokens", "3"],
                          ["run", model, "-p", "a", "--draft-acceptance", "window"],
                          ["bench", model, "-p", "8", "-n", "0", "-c", "7"], ["bench", model, "-p", "8", "-n", "0", "-d", "1", "-c", "8"],
                          ["inspect", model, "--kv-type", "q4_0"], ["tokenize", model, "-p", "a", "-c", "8"],
                          ["run", model, "-p", "a", "--split", "1,1"], ["run", model, "-p", "a", "--split", "3"]):
            with self.subTest(arguments):
                done = run(*arguments)
                self.assertEqual(done.returncode, 2, done)
                self.refused(done)
        done = run("batch", model, requests, "--raw", "--system", "b")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("--system", json.loads(done.stdout)["error"])
        self.refused(run("run", model, "-p", "a", "-s", str(1 << 63)), "from 0 to 2^63 - 1, not")
        self.refused(run("run", model, "-p", "a", "--split", "3"), "gives 3 layers, the model has 2")

    def test_environment_that_means_nothing(self):
        for name, value in (("ISOMER_LOG", "loud"), ("ISOMER_BACKEND_PATH", "/nowhere")):
            done = run("run", tiny_model(), "-p", "a", "--raw", "-n", "1", env=dict(os.environ, **{name: value}))
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(done.stderr.decode().count(value), 1, done)

    def test_output_that_nobody_takes(self):
        for arguments in (["--help"], ["--version"], ["help", "--man"], ["run", "--help"], ["inspect", tiny_model()],
                          ["tokenize", tiny_model(), "-p", "a"], ["devices"], ["run", tiny_model(), "-p", "a", "-n", "2", "--raw"]):
            with self.subTest(arguments), open("/dev/full", "w") as full:
                done = run(*arguments, stdout=full)
                self.assertEqual(done.returncode, 1, done)
                self.assertEqual(done.stderr.count(b"\n"), 1, done)
                self.assertIn(b"cannot write", done.stderr)

    def test_closed_streams(self):
        """No file that is opened takes the place of a closed stream and is written over."""
        for closed in (">&-", "<&- >&-", "<&- >&- 2>&-", "2>&-", "<&-"):
            target = os.path.join(self.folder, "out.gguf")
            done = subprocess.run(["sh", "-c", f'exec "$0" synth tiny-llama "$1" --scheme f32 {closed}', isomer.BINARY, target],
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
            self.assertEqual(done.returncode, 0, done)
            with open(target, "rb") as made, open(tiny_model(), "rb") as wanted:
                self.assertEqual(made.read(), wanted.read(), closed)
            os.unlink(target)

    def test_a_small_stack(self):
        """It grows as far as it may, and where that is too little the command says so."""
        def limit(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        arguments = ("run", tiny_model(), "-p", "Hello there", "-n", "2", "--raw", "--temp", "0", "-t", "2")
        usual = isomer.run(*arguments).stdout
        small = 64 << 10
        self.assertEqual(isomer.run(*arguments, preexec_fn=limit(small, hard)).stdout, usual)
        self.assertEqual(isomer.run(*arguments, preexec_fn=limit(small, 1 << 20)).stdout, usual)
        done = isomer.run(*arguments, code=1, preexec_fn=limit(small, small))
        self.assertIn("the stack is limited to 64 KiB, 256 KiB are needed", done.stderr)

    def test_input_that_cannot_be_read(self):
        with open("/proc/self/mem", "rb") as unreadable:
            self.refused(run("tokenize", tiny_model(), stdin=unreadable), "standard input")

    def test_lines_without_end(self):
        """What never ends must not be kept whole; a batch goes on behind a line that is too long."""
        long = os.path.join(self.folder, "long.jsonl")
        with open(long, "wb") as file:
            file.truncate(65 << 20)
            file.seek(0, os.SEEK_END)
            file.write(b'\n{"prompt": "a", "max_tokens": 2}\n')
        with open(long, "rb") as endless:
            self.refused(run("chat", tiny_model(), "-c", "64", stdin=endless), "longer than")
        done = run("batch", tiny_model(), long, "-c", "64")
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), 2, done)
        self.assertIn("longer than", json.dumps(answers[0]))
        self.assertNotIn("error", answers[1])

    def test_folders_that_cannot_be_written(self):
        pipe = self.folder + "/pipe"
        os.mkfifo(pipe)  # never a real device here: a writer at fault takes its place
        for target in ("/proc/x.gguf", self.folder + "/no/such/x.gguf", self.folder, pipe):
            self.refused(run("synth", "tiny-llama", target), "cannot write")
        self.assertEqual(os.listdir(self.folder), ["pipe"])
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_an_interrupt_does_not_wait_for_the_reference(self):
        """Its steps take minutes with real models; with this prompt, seconds."""
        text = os.path.join(self.folder, "text")
        with open(text, "w") as file:
            file.write("word " * 1500)
        process = subprocess.Popen([isomer.BINARY, "verify", tiny_model(), "-f", text, "-c", "8192"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), -signal.SIGINT)

    def test_a_model_cut_short_while_in_use(self):
        """A mapping of it ends in a signal, and the signal in a sentence."""
        path = os.path.join(self.folder, "cut.gguf")
        shutil.copy(tiny_model(), path)
        server = Server("--device", "host", model=path)
        os.truncate(path, 0)
        with self.assertRaises(Exception):
            server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
        server.process.wait(60)
        server.end()
        self.assertEqual(server.process.returncode, 1, server.lines[-3:])
        self.assertIn("cut short while in use", server.lines[-1])


if __name__ == "__main__":
    isomer.main()
