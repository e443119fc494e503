#!/usr/bin/env python3
"""Where the text of an answer begins, of a model whose words carry the space before them.   test_continued_text.py PATH_TO_ISOMER"""
import json
import os
import string
import tempfile
import unittest

import isomer
from serving import CHAT, COMPLETIONS, Server

VOCABULARY = 160
WORD = 100  # one of many tokens that begin with a space


def write_model(folder):
    """The golden llama with a tokenizer as SentencePiece's, and a template that is the text alone."""
    for name in ("config.json", "model.safetensors"):
        os.symlink(os.path.join(isomer.MODELS, "llama", name), os.path.join(folder, name))
    pieces = ["<unk>", "<s>", "</s>", "\u2581", *string.ascii_lowercase]
    pieces += ["\u2581" + a + b for a in string.ascii_lowercase for b in string.ascii_lowercase][:VOCABULARY - len(pieces)]
    special = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    spaces = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}
    tokenizer = {"added_tokens": [{"id": i, "content": pieces[i], **special} for i in range(3)],
                 "pre_tokenizer": {**spaces, "split": False}, "decoder": spaces,
                 "model": {"type": "BPE", "merges": [], "unk_token": "<unk>", "vocab": {piece: i for i, piece in enumerate(pieces)}}}
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"}
    for name, what in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(what, file)


class ContinuedText(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="isomer-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = os.path.join(cls.folder.name, "model")
        os.mkdir(cls.model)
        write_model(cls.model)
        cls.server = Server("-t", "1", model=cls.model)
        cls.addClassCleanup(cls.server.stop)

    def test_words_stay_apart_where_the_prompt_goes_on(self):
        def text_of(prompt, **more):
            body = {"prompt": prompt, "max_tokens": 2, "logit_bias": {str(WORD): 100}, "temperature": 0, **more}
            answer = self.server.post(COMPLETIONS, body)["choices"][0]
            streamed = self.server.stream(COMPLETIONS, {**body, "stream": True})
            self.assertEqual("".join(event["choices"][0]["text"] for event in streamed), answer["text"])
            return answer["text"]
        word = self.server.post("/detokenize", {"tokens": [WORD]})["prompt"]
        self.assertEqual(word, word.strip())
        self.assertEqual(text_of("ab"), f" {word} {word}")
        self.assertEqual(text_of("ab", echo=True), f"ab {word} {word}")
        ids = self.server.post("/tokenize", {"prompt": "ab"})["tokens"]
        self.assertEqual(text_of(ids, echo=True), self.server.post("/detokenize", {"tokens": ids[-3:] + [WORD] * 2})["prompt"])
        self.assertEqual(text_of([1]), f"{word} {word}")  # nothing is before it
        body = {"prompt": "ab", "max_tokens": 2, "logit_bias": {str(WORD): 100}, "temperature": 0}
        self.assertEqual(self.server.post("/generate", body)["text"], [f"ab {word} {word}"])
        chat = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 2, "logit_bias": {str(WORD): 100}}
        message = self.server.post(CHAT, chat)["choices"][0]["message"]
        self.assertEqual(message["content"], f"{word} {word}")  # a text of its own

    def test_places_of_tokens_are_those_of_the_text(self):
        for prompt, echo, offsets in (("ab", False, [0, 3]), ([1], False, [0, 2]), ("ab", True, [0, 0, 1, 2, 5]),
                                      ([1, WORD], True, [0, 0, 2, 5]), ([1], True, [0, 0, 2])):
            body = {"prompt": prompt, "echo": echo, "logprobs": 0, "max_tokens": 2, "logit_bias": {str(WORD): 100}}
            for shown in (True, False):
                answer = self.server.post(COMPLETIONS, {**body, "n": 2, "skip_special_tokens": not shown})["choices"][1]
                if prompt != [1]:  # which is shown, and then something is before the answer
                    self.assertEqual(answer["logprobs"]["text_offset"], offsets, answer)
            self.assertEqual(answer["logprobs"]["text_offset"], offsets, answer)
            self.assertEqual(answer["text"][offsets[-1]:], answer["logprobs"]["tokens"][-1])
            events = [event["choices"][0]["logprobs"] for event in self.server.stream(COMPLETIONS, {**body, "stream": True})]
            self.assertEqual([offset for event in events if event for offset in event["text_offset"]], offsets)

    def test_commands_say_what_the_server_does(self):
        for letter in string.ascii_lowercase:  # until one is continued with a word
            prompt = letter * 3
            text = self.server.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 5, "temperature": 0, "ignore_eos": True})["choices"][0]["text"]
            if text.startswith(" "):
                break
        self.assertEqual(text[:1], " ")
        inputs = {"inputs": prompt, "parameters": {"max_new_tokens": 5}}
        self.assertEqual(self.server.post("/generate", inputs)["generated_text"], text)
        self.assertEqual(self.server.post("/", inputs)[0]["generated_text"], prompt + text)
        options = ("-n", 5, "--temp", 0)
        self.assertEqual(isomer.run("run", self.model, "--raw", "-p", prompt, *options).stdout, text + "\n")
        self.assertEqual(isomer.run("run", self.model, "-p", prompt, *options).stdout, text[1:] + "\n")
        lines = os.path.join(self.folder.name, "lines")
        with open(lines, "w", encoding="utf-8") as file:
            for line in ({"prompt": prompt}, {"src": prompt}, {"messages": [{"role": "user", "content": prompt}]}):
                print(json.dumps(line), file=file)
        for raw, expected in (((), [text, text[1:], text[1:]]), (("--raw",), [text, text, text[1:]])):
            answers = isomer.run("batch", self.model, lines, *raw, *options).stdout.splitlines()
            self.assertEqual([json.loads(answer)["text"] for answer in answers], expected)


if __name__ == "__main__":
    isomer.main()
