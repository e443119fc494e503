#!/usr/bin/env python3
"""Random requests, streamed and whole: the same texts, tokens, ends and counts.   test_serve_both_ways.py PATH_TO_ISOMER

ISOMER_TEST_REQUESTS (120) is how many of each kind, ISOMER_TEST_SEED (1) which."""
import json
import os
import random
import unittest

import isomer
from serving import CHAT, COMPLETIONS, Server

N_REQUESTS, SEED = int(os.environ.get("ISOMER_TEST_REQUESTS", "120")), int(os.environ.get("ISOMER_TEST_SEED", "1"))
SCHEMAS = ({"enum": ["é🤷", 1, None]}, {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
           {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "string", "maxLength": 6}},
            "required": ["a", "b"]})


class BothWays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", "256", "-t", "1", "--page-size", "16", "--kv-memory", "1", "--speculation", "ngram")

    @classmethod
    def tearDownClass(cls):
        cls.server.wait_until_idle()
        cls.server.stop()

    def random_body(self, rng, is_chat):
        body = {"seed": rng.randrange(1000), "max_tokens": rng.choice((1, 2, 7, 40)), "temperature": rng.choice((0, 0.7, 1.5))}
        if is_chat:
            body["messages"] = [{"role": "user", "content": rng.choice(("hi", "é🤷 x", "a" * 50))}]
        else:
            body["prompt"] = rng.choice(("hi", ["a", "bc"], "é🤷", [70, 71, 72], [[70], [71, 72]]))
        for name, values in (("n", (1, 2, 3)), ("ignore_eos", (True,)), ("stop", ("0", ["r", "3"], "\ufffd")), ("min_tokens", (0, 1)),
                             ("logit_bias", ({"70": 5, "80": -100},)), ("frequency_penalty", (1.5,)), ("top_p", (0.8,)),
                             ("skip_special_tokens", (False,))):
            if rng.random() < 0.3:
                body[name] = rng.choice(values)
        if rng.random() < 0.4:
            body.update({"logprobs": True, "top_logprobs": rng.choice((0, 2))} if is_chat else {"logprobs": rng.choice((0, 2))})
        if not is_chat and rng.random() < 0.3:
            body["echo"] = True
        if rng.random() < 0.3 and not body.get("ignore_eos") and not body.get("min_tokens"):
            body.update(max_tokens=60, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": rng.choice(SCHEMAS)}})
        return body

    def parts(self, choice, is_chat):
        """Text, end and names of tokens, of a choice or of a piece of one."""
        text = choice["text"] if not is_chat else choice.get("message", choice.get("delta")).get("content")
        logprobs = choice.get("logprobs") or {"content": [], "tokens": []}
        return text or "", choice["finish_reason"], [t["token"] for t in logprobs["content"]] if is_chat else logprobs["tokens"]

    def test_of_openai(self):
        rng = random.Random(SEED)
        for _ in range(N_REQUESTS):
            is_chat = rng.random() < 0.4
            path, body = CHAT if is_chat else COMPLETIONS, self.random_body(rng, is_chat)
            whole = self.server.post(path, body)
            joined = [["", None, []] for _ in whole["choices"]]
            *events, last = self.server.stream(path, {**body, "stream": True, "stream_options": {"include_usage": True}})
            for choice in (choice for event in events for choice in event["choices"]):
                text, end, tokens = self.parts(choice, is_chat)
                into = joined[choice["index"]]
                into[0] += text
                into[1] = end or into[1]
                into[2] += tokens
            for choice, other in zip(whole["choices"], joined):
                self.assertEqual(list(self.parts(choice, is_chat)), other, body)
                if "response_format" in body and choice["finish_reason"] == "stop" and not {"stop", "echo"} & set(body):
                    json.loads(other[0])
            for name in ("prompt_tokens", "completion_tokens"):
                self.assertEqual(last["usage"][name], whole["usage"][name], body)

    def test_of_generate(self):
        rng = random.Random(SEED)
        for _ in range(N_REQUESTS):
            asked = {"seed": rng.randrange(1000), "max_new_tokens": rng.choice((1, 7, 40)), "do_sample": rng.random() < 0.7, "details": True}
            for name, values in (("stop", (["0"], ["r", "\ufffd"])), ("top_n_tokens", (2,)), ("repetition_penalty", (1.5,)),
                                 ("grammar", [{"type": "json", "value": schema} for schema in SCHEMAS])):
                if rng.random() < 0.3:
                    asked[name] = rng.choice(values)
            body = {"inputs": rng.choice(("hi", "é🤷 x")), "parameters": asked}
            whole, events = self.server.post("/generate", body), list(self.server.stream("/generate_stream", body))
            self.assertEqual("".join(e["token"]["text"] for e in events), whole["generated_text"], body)
            self.assertEqual([e["token"]["id"] for e in events[:-1]], [t["id"] for t in whole["details"]["tokens"]], body)
            self.assertEqual(events[-1]["generated_text"], whole["generated_text"], body)
            for name in ("finish_reason", "generated_tokens", "seed"):
                self.assertEqual(events[-1]["details"][name], whole["details"][name], body)
            body = {"prompt": body["inputs"], "seed": asked["seed"], "max_tokens": asked["max_new_tokens"], "n": rng.choice((1, 2, 3))}
            if rng.random() < 0.3:
                body.update(use_beam_search=True, beam_width=body["n"] + rng.randrange(3), length_penalty=rng.choice((0.5, 1, 2)))
            self.assertEqual(list(self.server.stream("/generate_stream", body))[-1], self.server.post("/generate", body), body)


if __name__ == "__main__":
    isomer.main()
