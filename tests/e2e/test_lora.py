#!/usr/bin/env python3
"""`--lora` of run, batch, perplexity and serve, with random adapters of a small random model."""
import json
import os
import pathlib
import random
import struct
import tempfile
import unittest

import isomer
import serving

RANK = 4
ADAPTERS = os.path.join(isomer.SOURCE, "tests/golden/adapters")


def write_adapter(folder, seed):
    """A PEFT folder for q and down of both layers of tiny-llama, in bf16."""
    source, header, data = random.Random(seed), {}, b""
    for layer in range(2):
        for module in ("self_attn.q_proj", "mlp.down_proj"):
            for part, shape in (("A", [RANK, 256]), ("B", [256, RANK])):
                values = [source.gauss(0, 0.2) for _ in range(shape[0] * shape[1])]
                begin = len(data)
                data += b"".join(struct.pack("<f", v)[2:] for v in values)
                name = f"base_model.model.model.layers.{layer}.{module}.lora_{part}.weight"
                header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "bias": "none",
         "target_modules": ["q_proj", "down_proj"]}))


class Lora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.folder.name)
        cls.model = serving.tiny_model()
        for seed, name in enumerate(("red", "blue")):
            write_adapter(cls.work / name, seed)
        cls.both = ["--lora", str(cls.work / "red"), "--lora", f"azure={cls.work / 'blue'}"]
        greedy = ["-p", "hello", "--raw", "--temp", "0", "-n", "12"]
        cls.answers = {name: isomer.run_json("run", cls.model, *greedy, *lora)["text"]
                       for name, lora in (("tiny", []), ("red", ["--lora", cls.work / "red"]),
                                          ("azure", ["--lora", cls.work / "blue"]))}
        assert len(set(cls.answers.values())) == 3, cls.answers

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_batch(self):
        names = ["azure", "tiny", "red", None, "azure", "green"]
        source = self.work / "in.jsonl"
        source.write_text("".join(json.dumps({"prompt": "hello", **({"model": n} if n else {})})
                                  + "\n" for n in names))
        done = isomer.run("batch", self.model, source, "--temp", "0", "-n", "12", "--kv-memory", "8",
                          "-c", "512", *self.both, code=1)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for name, line in zip(names[:-1], lines):
            self.assertEqual(line["text"], self.answers[name or "tiny"], name)
        self.assertIn("green", lines[-1]["error"])

    def test_serve(self):
        with serving.Server(*self.both, "--kv-memory", 8, "-c", 512) as server:
            models = json.loads(server.get("/v1/models"))["data"]
            self.assertEqual([m["id"] for m in models], ["tiny", "red", "azure"])
            self.assertEqual([m.get("parent") for m in models], [None, "tiny", "tiny"])
            self.assertEqual(json.loads(server.get("/v1/models/azure"))["parent"], "tiny")
            for _ in range(2):  # the second time from the prefix cache
                for name, text in self.answers.items():
                    body = {"model": name, "prompt": "hello", "temperature": 0, "max_tokens": 12}
                    answer = server.post("/v1/completions", body)
                    self.assertEqual(answer["choices"][0]["text"], text)
                    self.assertEqual(answer["model"], name)
            vectors = [server.post("/v1/embeddings", {"model": name, "input": "hello"})
                       ["data"][0]["embedding"] for name in self.answers]
            self.assertEqual(len(set(map(tuple, vectors))), 3)
            error = server.post("/v1/completions", {"model": "green", "prompt": "x"}, status=404)
            self.assertEqual(error["error"]["code"], "model_not_found")

    def test_perplexity(self):
        text = self.work / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 20)
        found = {isomer.run_json("perplexity", self.model, "-f", text, "-c", "64", *lora)
                 ["perplexity"] for lora in ([], self.both[:2], self.both[2:])}
        self.assertEqual(len(found), 3)

    def test_verify(self):
        """The ops of an adapter are checked as all others are; a trace is of one set of adapters."""
        red, trace = self.both[:2], self.work / "red.trace"
        wrong = dict(os.environ, ISOMER_WRONG="grouped_matmul", ISOMER_BACKEND_PATH=os.path.join(
            os.path.dirname(isomer.BINARY), "wrong_plugin"))  # the op that adapters add
        for lora, code in (([], 0), (red, 1)):
            isomer.run("verify", self.model, "-n", 4, "--devices", "host,wrong", *lora, env=wrong, code=code)
        self.assertTrue(isomer.run_json("verify", self.model, "-n", 4, *red)["agrees"])
        isomer.run("verify", self.model, "-n", 4, *red, "--devices", "host", "--record", trace)
        against = ["verify", self.model, "--devices", "cpu", "--against", trace]
        isomer.run(*against, *red)
        self.assertIn("--lora", isomer.run(*against, code=2).stderr)

    def test_refusals(self):
        red = str(self.work / "red")
        for code, words, arguments in (
                (2, "takes one adapter", ["run", self.model, "-p", "x", *self.both]),
                (2, "takes one adapter", ["verify", self.model, *self.both]),
                (1, "a LoRA adapter; give the model", ["inspect", os.path.join(ADAPTERS, "llama")]),
                (1, "a LoRA adapter; give the model", ["inspect", os.path.join(ADAPTERS, "llama.gguf")]),
                (1, "no such file", ["run", self.model, "-p", "x", "--lora", "/nowhere"]),
                (2, "two adapters", ["batch", self.model, "-", "--lora", red, "--lora", red]),
                (2, "as the model is", ["serve", self.model, "--lora", f"tiny={red}"])):
            self.assertIn(words, isomer.run(*arguments, code=code).stderr)


isomer.main()
