"""`isomer synth`: files that every reader takes, the same from the same seed, whole or not at all."""
import hashlib
import json
import os
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import isomer

TINY = ("tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gemma3")
SCHEMES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k",
           "q5_k", "q6_k", "iq4_nl", "q4_k_m")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Synth(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def schemes_of(self, path):
        tensors = isomer.run_json("inspect", path, "--tensors")["tensors"]
        return {tensor["name"]: tensor["scheme"] for tensor in tensors}

    def test_every_scheme_is_read_back(self):
        path = self.path("a.gguf")
        for scheme in SCHEMES:
            with self.subTest(scheme=scheme):
                made = isomer.run_json("synth", "tiny-llama", path, "--scheme", scheme)
                found = isomer.run_json("inspect", path)
                self.assertEqual(found["weight_bytes"], made["tensor_bytes"])
                if scheme != "q4_k_m":
                    kinds = set(self.schemes_of(path).values())
                    self.assertEqual(kinds, {scheme, "f32"})
                isomer.run("run", path, "--raw", "-p", "the", "-n", 2, "--temp", 0, "-t", 1)

    def test_shapes_have_their_hyperparameters(self):
        expected = {"tiny-llama": ("llama", 2, 2, 0, False), "tiny-qwen2": ("qwen2", 2, 2, 0, True),
                    "tiny-qwen3": ("qwen3", 2, 2, 0, True),
                    "tiny-gemma3": ("gemma3", 6, 1, 64, True)}
        for shape in TINY:
            for output in ("a.gguf", "a/"):
                with self.subTest(shape=shape, output=output):
                    isomer.run("synth", shape, self.path(output))
                    found = isomer.run_json("inspect", self.path(output))
                    facts = tuple(found[key] for key in ("architecture", "n_layers", "n_kv_heads",
                                                         "sliding_window", "tied_embeddings"))
                    self.assertEqual(facts, expected[shape])
                    self.assertEqual(found["vocabulary_size"], 320)

    def test_file_and_folder_are_the_same_model(self):
        """Rotary pairs and norm gains lie differently in the two formats, and must come out even."""
        for shape in TINY:
            for scheme in ("f32", "bf16"):
                with self.subTest(shape=shape, scheme=scheme):
                    answers = []
                    for output in ("a.gguf", "a/"):
                        isomer.run("synth", shape, self.path(output), "--scheme", scheme)
                        found = isomer.run_json("run", self.path(output), "--raw", "--temp", 0,
                                                "-n", 24, "-p", "the cat and the hat", "-t", 1)
                        answers.append((found["n_prompt"], found["text"]))
                    self.assertEqual(*answers)

    def test_seed_decides_every_byte(self):
        for name, seed in (("a", 7), ("b", 7), ("c", 8)):
            isomer.run("synth", "tiny-qwen3", self.path(name), "--scheme", "q4_k", "--seed", seed)
        self.assertEqual(digest(self.path("a")), digest(self.path("b")))
        self.assertNotEqual(digest(self.path("a")), digest(self.path("c")))

    def test_tokenizer_covers_every_byte(self):
        text = "the thing \u00fcn\u00ef \u65e5\u672c \U0001f600 <|im_end|>\n"
        ids = []
        for output in ("a.gguf", "a/"):
            isomer.run("synth", "tiny-llama", self.path(output))
            ids.append(isomer.run_json("tokenize", self.path(output), "-p", text))
            plain = " ".join(map(str, ids[-1]))
            decoded = isomer.run("tokenize", self.path(output), "--decode", "-p", plain).stdout
            self.assertEqual(decoded, text + "\n")
        self.assertEqual(*ids)
        self.assertEqual(ids[0][0], 257)  # "the": two merges
        self.assertEqual(max(ids[0]), 267)  # "ing"; special tokens in a text are text

    def test_mix_gives_more_bits_to_some_layers(self):
        isomer.run("synth", "tiny-gemma3", self.path("a.gguf"), "--scheme", "q4_k_m")
        schemes = self.schemes_of(self.path("a.gguf"))
        for layer in range(6):
            wanted = "q6_k" if layer in (2, 5) else "q4_k"
            for name in ("attn_v", "ffn_down"):
                self.assertEqual(schemes[f"blk.{layer}.{name}.weight"], wanted)
            for name in ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"):
                self.assertEqual(schemes[f"blk.{layer}.{name}.weight"], "q4_k")
        self.assertEqual(schemes["token_embd.weight"], "q6_k")

    def test_rows_that_are_not_whole_blocks_fall_back(self):
        done = isomer.run("synth", "smollm2-135m", self.path("a.gguf"), "--scheme", "q4_k_m")
        self.assertRegex(done.stderr, r"not whole q4_k blocks of 256; they are q5_0")
        self.assertRegex(done.stderr, r"not whole q6_k blocks of 256; they are q8_0")
        schemes = self.schemes_of(self.path("a.gguf"))
        self.assertEqual(schemes["blk.3.attn_q.weight"], "q5_0")  # rows of 576
        self.assertEqual(schemes["blk.0.attn_v.weight"], "q8_0")
        self.assertEqual(schemes["blk.3.ffn_down.weight"], "q4_k")  # rows of 1536
        self.assertEqual(schemes["blk.0.ffn_down.weight"], "q6_k")

    def test_config_is_transformers_own(self):
        isomer.run("synth", "tiny-gemma3", self.path("a/"))
        with open(self.path("a/config.json")) as file:
            config = json.load(file)
        self.assertEqual(config["model_type"], "gemma3_text")
        self.assertEqual(config["architectures"], ["Gemma3ForCausalLM"])
        self.assertEqual(config["rms_norm_eps"], 1e-6)
        self.assertEqual(config["layer_types"], ["sliding_attention"] * 5 + ["full_attention"])

    # ---- Faults: one line, and nothing left behind ----

    def check_refused(self, *arguments, code, says):
        done = isomer.run("synth", *arguments, code=code)
        self.assertRegex(done.stderr, says)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_unknown_shape_lists_the_known(self):
        self.check_refused("llama9", self.path("a"), code=2, says="unknown shape.*smollm2-135m.*tiny-gemma3")

    def test_unknown_scheme(self):
        self.check_refused("tiny-llama", self.path("a"), "--scheme", "q9", code=2, says="q9")
        self.check_refused("tiny-llama", self.path("a"), "--scheme", "i8", code=2, says="integers")

    def test_folder_takes_no_blocks(self):
        self.check_refused("tiny-llama", self.path("a/"), "--scheme", "q4_0", code=2,
                           says="safetensors has no type for q4_0")

    def test_missing_words(self):
        self.check_refused("tiny-llama", code=2, says="a shape and an output")

    def test_folder_that_is_not_there(self):
        self.check_refused("tiny-llama", self.path("no/a.gguf"), code=1, says="no/a.gguf")
        self.check_refused("tiny-llama", self.path("no/a/"), code=1, says="no/a/")

    def test_full_disk(self):
        """A limit on the file's size stands for a disk that is full: the same write fails."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        for output in ("a.gguf", "a/"):
            done = isomer.run("synth", "tiny-llama", self.path(output), code=1, preexec_fn=limit)
            self.assertRegex(done.stderr, "cannot write .*: File too large")
            self.assertEqual(os.listdir(self.folder), [])

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start("a.gguf")
            process.send_signal(number)
            self.assertIn("interrupted", process.communicate(timeout=60)[1])
            self.assertEqual(process.returncode, 1)
            self.assertEqual(os.listdir(self.folder), [])

    def test_signals_that_are_ignored(self):
        process = self.start("a.gguf", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        process.send_signal(signal.SIGINT)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.terminate()
        process.communicate(timeout=60)
        self.assertEqual(os.listdir(self.folder), [])

    def start(self, output, **options):
        """A command that has begun to write a large file."""
        process = subprocess.Popen([isomer.BINARY, "synth", "llama3-8b", self.path(output)],
                                   stderr=subprocess.PIPE, text=True, **options)
        while not os.listdir(self.folder) and process.poll() is None:
            time.sleep(0.01)
        return process


if __name__ == "__main__":
    isomer.main()
