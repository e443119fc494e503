"""`isomer perplexity` against transformers, and what must not change it."""
import math
import os
import tempfile
import unittest

import isomer

SMOLLM2 = isomer.need_model("ISOMER_TEST_SMOLLM2")

# The first 3,000 bytes of the licence, in windows of 128 tokens, the weights dequantized to f32:
# transformers 5.24 on the ids that `isomer tokenize` gives (which are those of the model's own
# tokenizer.json), losses in f64.
EXPECTED, EXPECTED_ERROR, SCORED = 15.11838628333076, 2.6055300053667945, 252


class Perplexity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(isomer.SOURCE, "LICENSE")) as file:
            cls.text = file.read(3000)

    def setUp(self):
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(self.text)
        self.file = file.name
        self.addCleanup(os.unlink, self.file)

    def score(self, *arguments):
        return isomer.run_json("perplexity", SMOLLM2, "-f", self.file, *arguments)

    def test_equals_transformers(self):
        found = self.score("-c", 128)
        self.assertEqual((found["n_scored"], found["n_windows"], found["n_ctx"]), (SCORED, 4, 128))
        # Activations of quantized products may be rounded to 8 bits.
        self.assertLess(abs(found["perplexity"] / EXPECTED - 1), 0.01)
        self.assertLess(abs(found["error"] / EXPECTED_ERROR - 1), 0.02)

    def test_losses(self):
        found = self.score("-c", 128, "--losses")
        self.assertEqual(len(found["losses"]), SCORED)
        self.assertAlmostEqual(math.exp(sum(found["losses"]) / SCORED) / found["perplexity"], 1, places=5)
        self.assertNotIn("losses", self.score("-c", 128))
        done = isomer.run("perplexity", SMOLLM2, "-f", self.file, "--losses", code=2)
        self.assertRegex(done.stderr, "--json")

    def test_steps_do_not_matter(self):
        whole, cut = self.score("-c", 128), self.score("-c", 128, "-b", 23)
        self.assertLess(abs(whole["perplexity"] / cut["perplexity"] - 1), 0.01)

    def test_text(self):
        done = isomer.run("perplexity", SMOLLM2, "-f", self.file, "-c", 128)
        self.assertRegex(done.stdout, r"^perplexity 1\d\.\d{4} ± \d\.\d{5} over 252 tokens in 4 windows")

    def test_too_little_text(self):
        done = isomer.run("perplexity", SMOLLM2, "a few words", code=2)
        self.assertRegex(done.stderr, "too few for a window of 512")
        done = isomer.run("perplexity", SMOLLM2, "word " * 100, "-c", 3, code=2)
        self.assertRegex(done.stderr, "at least 4 tokens, -c says 3")


if __name__ == "__main__":
    isomer.main()
