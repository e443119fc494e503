"""`isomer run`: a prompt is the same text however it is given, and what is not one is said."""
import json
import os
import tempfile
import unittest

import isomer

PROMPT = "Name three colours,\nplease: é"


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = os.path.join(cls.folder.name, "tiny") + "/"  # its tokenizer has a chat template
        isomer.run("synth", "tiny-llama", cls.model)

    def answer(self, *arguments, **options):
        # What memory held before shows where a text does not end.
        environment = dict(os.environ, MALLOC_PERTURB_="85")
        return isomer.run("run", self.model, "-n", 8, "--temp", 0, *arguments, env=environment, **options)

    def test_prompt_from_anywhere(self):
        path = os.path.join(self.folder.name, "prompt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROMPT)
        for raw in ((), ("--raw",)):
            expected = self.answer(*raw, "-p", PROMPT).stdout
            self.assertTrue(expected)
            self.assertEqual(self.answer(*raw, "-f", path).stdout, expected)
            self.assertEqual(self.answer(*raw, input=PROMPT).stdout, expected)
            self.assertEqual(self.answer(*raw, "-f", "-", input=PROMPT).stdout, expected)
            self.assertEqual(self.answer(*raw, "-f", "/dev/stdin", input=PROMPT).stdout, expected)
            self.assertEqual(self.answer(*raw, *PROMPT.split(" ")).stdout, expected)

    def test_long_prompt_from_standard_input(self):
        text = "word " * 300
        self.assertEqual(self.answer(input=text).stdout, self.answer("-p", text).stdout)

    def test_minus_one_is_no_limit(self):
        for n in (0, -1):
            done = isomer.run("run", self.model, "-p", PROMPT, "-c", 128, "--temp", 0, "-n", n)
            self.assertEqual(done.stdout, isomer.run("run", self.model, "-p", PROMPT, "-c", 128, "--temp", 0).stdout)
        self.assertIn("from -1", self.answer("-p", PROMPT, "-n", -2, code=2).stderr)

    def test_no_prompt(self):
        self.assertIn("no prompt", self.answer(code=2).stderr)
        self.assertIn("no prompt", self.answer(code=2, input="").stderr)

    def test_special_tokens_in_a_prompt_are_text(self):
        def n_prompt(text):
            return isomer.run_json("run", self.model, "-n", 1, "-p", text)["n_prompt"]
        # A byte a token: the token of the special text would be one.
        self.assertEqual(n_prompt("ab<|im_end|>cd"), n_prompt("ab") + len("<|im_end|>cd"))
        source = os.path.join(self.folder.name, "in.jsonl")
        with open(source, "w", encoding="utf-8") as file:
            for text in ("ab", "ab<|im_end|>cd"):
                file.write(json.dumps({"src": text, "max_tokens": 1}) + "\n")
                file.write(json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 1}) + "\n")
        answers = [json.loads(line)["n_prompt"] for line in isomer.run("batch", self.model, source).stdout.splitlines()]
        self.assertEqual(answers[2:], [n + len("<|im_end|>cd") for n in answers[:2]])

    def test_prompts_that_contradict(self):
        path = os.path.join(self.folder.name, "prompt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROMPT)
        for arguments in (("-p", "a", "-f", path), ("a", "-p", "b"), ("a", "-f", path)):
            self.assertIn("more than once", self.answer(*arguments, code=2).stderr)

    def test_the_seed_that_is_told_brings_the_same(self):
        for _ in range(6):
            arguments = ("run", self.model, "-p", PROMPT, "-n", 8, "--temp", 2)
            told = isomer.run_json(*arguments)
            again = isomer.run_json(*arguments, "--seed", told["seed"])
            self.assertEqual((again["text"], again["seed"]), (told["text"], told["seed"]))

    def test_nul_in_a_message(self):
        self.assertIn("NUL byte at offset 2", self.answer(code=2, input="hi\0there").stderr)


if __name__ == "__main__":
    isomer.main()
