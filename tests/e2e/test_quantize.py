"""`isomer quantize`: what is in the file, how close it stays, and what is refused."""
import filecmp
import math
import os
import shutil
import struct
import tempfile
import unittest

import isomer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT = os.path.join(ROOT, "README.md")


class Quantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.float_model = cls.path("float.gguf")
        isomer.run("synth", "tiny-llama", cls.float_model, "--scheme", "f32")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def tensors(self, path):
        found = isomer.run_json("inspect", path, "--tensors")
        return {tensor["name"]: tensor for tensor in found["tensors"]}

    def perplexity(self, path):
        return isomer.run_json("perplexity", path, "-f", TEXT, "-c", "128")["perplexity"]

    def test_every_scheme(self):
        reference = self.perplexity(self.float_model)
        for scheme, tolerance in (("f32", 0), ("f16", 1e-3), ("bf16", 1e-2), ("q8_0", 1e-2),
                                  ("q4_0", 0.1), ("q4_k", 0.1), ("q6_k", 0.02), ("q4_k_m", 0.1)):
            with self.subTest(scheme=scheme):
                out = self.path(scheme + ".gguf")
                isomer.run("quantize", self.float_model, out, "--scheme", scheme)
                found = self.perplexity(out)
                self.assertLessEqual(abs(found / reference - 1), tolerance)

    def test_only_matrices_change(self):
        out = self.path("matrices.gguf")
        isomer.run("quantize", self.float_model, out, "--scheme", "q8_0")
        before, after = self.tensors(self.float_model), self.tensors(out)
        self.assertEqual(list(before), list(after))
        for name, tensor in after.items():
            matrix = len(tensor["dims"]) > 1
            self.assertEqual(tensor["scheme"], "q8_0" if matrix else before[name]["scheme"], name)
            self.assertEqual(tensor["dims"], before[name]["dims"])

    def test_file_type(self):
        """Other programs do not open a file that does not say of what type most of it is."""
        for scheme, number in (("f32", 0), ("bf16", 32), ("q8_0", 7), ("q4_k", 14), ("q4_k_m", 15)):
            made, synthesized = self.path("type.gguf"), self.path("synth.gguf")
            isomer.run("quantize", self.float_model, made, "--scheme", scheme)
            isomer.run("synth", "tiny-llama", synthesized, "--scheme", scheme)
            for path in made, synthesized:
                with self.subTest(scheme=scheme, path=os.path.basename(path)), open(path, "rb") as file:
                    header = file.read(1 << 16)
                    key = b"general.file_type"
                    at = header.index(key) + len(key)
                    self.assertEqual(struct.unpack_from("<II", header, at), (4, number))  # uint32
                    self.assertEqual(header.count(key), 1)

    def test_threads_do_not_matter(self):
        files = []
        for threads in ("1", "3"):
            files.append(self.path(f"threads{threads}.gguf"))
            isomer.run("quantize", self.float_model, files[-1], "--scheme", "q5_k", "-t", threads)
        self.assertTrue(filecmp.cmp(*files, shallow=False))

    def test_onto_itself(self):
        path = self.path("self.gguf")
        isomer.run("quantize", self.float_model, path, "--scheme", "q8_0")
        isomer.run("quantize", path, path, "--scheme", "f16")
        self.assertEqual(self.tensors(path)["token_embd.weight"]["scheme"], "f16")

    def test_values_that_no_block_can_hold(self):
        """Encoders would make zeros of NaN and other numbers of large ones."""
        broken, out = self.path("broken.gguf"), self.path("of_broken.gguf")
        shutil.copy(self.float_model, broken)
        schemes = ("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_1", "q2_k", "q3_k", "q6_k", "iq4_nl")
        for value, words, holders in ((math.nan, "holds NaN", ()), (-math.inf, "holds an inf", ()),
                                      (-1e30, "holds -1e+30, which", ("bf16",)),
                                      (65000.0, "", schemes)):
            with open(broken, "r+b") as file:  # the last element of output.weight
                file.seek(-4, os.SEEK_END)
                file.write(struct.pack("<f", value))
            for scheme in schemes:
                with self.subTest(value=value, scheme=scheme):
                    fine = scheme in holders
                    done = isomer.run("quantize", broken, out, "--scheme", scheme, code=int(not fine))
                    self.assertIn("" if fine else "row 319 of output.weight " + words, done.stderr)
                    self.assertEqual(os.path.exists(out), fine)
                    if fine:
                        os.remove(out)

    def test_refusals(self):
        out = self.path("refused.gguf")
        for arguments, words, code in (
                (["quantize", self.float_model, out, "--scheme", "q9"], "--scheme q9 is unknown", 2),
                (["quantize", self.float_model, out, "--scheme", "i32"], "integers", 2),
                (["quantize", self.float_model], "takes a model and an output", 2),
                (["quantize", os.path.join(ROOT, "tests/golden/models/llama"), out], "GGUF", 1)):
            with self.subTest(words=words):
                done = isomer.run(*arguments, code=code)
                self.assertIn(words, done.stderr)
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    isomer.main()
