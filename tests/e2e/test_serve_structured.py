#!/usr/bin/env python3
"""Answers held to JSON schemas: whatever a model with random weights says, it is JSON that the schema takes.
   test_serve_structured.py PATH_TO_ISOMER"""
import json
import random
import string
import threading
import unittest

import isomer
from serving import CHAT, COMPLETIONS, Server

isomer.need_packages("jsonschema_rs")
import jsonschema_rs  # noqa: E402

WORDS = ["a", "ab", "name", "é", "日本", "x\"y", "b\\c", "line\n", ""]


def scalar(rng):
    return rng.choice([None, True, False, 0, -7, 12, 2.5, *WORDS])


def text(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return {"type": "string", "pattern": rng.choice([
            "^[a-c]{1,4}$", "^\\d{2,3}(-[A-Z]+)?$", "^(x|yz)*q$", "b", "^[^aeiou\\s]{2}", "\\.$", "^.{3}$", "^\\w+@\\w+\\.(com|org)$"])}
    if kind == 1:
        return {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid", "ipv4", "email", "hostname", "uri"])}
    if kind == 2:
        low = rng.randrange(4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randrange(8)}
    return {"type": "string", "maxLength": 12}


def number(rng):
    schema = {"type": rng.choice(["integer", "number"])}
    if rng.random() < 0.7:
        low = rng.randrange(-1500, 1500)
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.8:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + 2 + rng.choice([0, 3, 90, 4000])
    elif rng.random() < 0.5:
        schema["maximum"] = rng.randrange(-50, 50)
    return schema


def random_object(rng, depth):
    names = rng.sample(WORDS, rng.randrange(4))
    schema = {"type": "object", "properties": {name: random_schema(rng, depth - 1) for name in names},
              "required": [name for name in names if rng.random() < 0.6]}
    if rng.random() < 0.3:
        schema["additionalProperties"] = rng.choice([False, {"type": "null"}, {"type": "boolean"}])
    return schema


def random_array(rng, depth):
    schema = {"type": "array", "items": random_schema(rng, depth - 1), "maxItems": rng.randrange(4)}
    if rng.random() < 0.5:
        schema["minItems"] = rng.randrange(schema["maxItems"] + 1)
    if rng.random() < 0.2:
        schema["prefixItems"] = [random_schema(rng, depth - 1) for _ in range(2)]
    return schema


def random_schema(rng, depth):
    kind = rng.randrange(9 if depth > 0 else 5)
    if kind == 0:
        return {"enum": [scalar(rng) for _ in range(rng.randrange(1, 6))]}
    if kind == 1:
        return {"const": rng.choice([scalar(rng), [1, {"a": None}], {"k": "v"}])}
    if kind == 2:
        return text(rng)
    if kind == 3:
        return number(rng)
    if kind == 4:
        return {"type": rng.sample(["null", "boolean", "integer"], 2), "title": "t"}
    if kind == 5:
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(3)]}
    return random_object(rng, depth) if kind < 8 else random_array(rng, depth)


def checker(schema):
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}}


class Structured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", "512", "--max-sequences", "8", "--kv-memory", "64", "--speculation", "ngram")

    @classmethod
    def tearDownClass(cls):
        cls.server.wait_until_idle()
        cls.server.stop()

    def check_choice(self, schema, content, finish):
        """Whole and valid, or cut by the limit."""
        if finish == "length":
            return 0
        self.assertEqual(finish, "stop")
        value = json.loads(content)
        checker(schema).validate(value)
        return 1

    def test_random_schemas(self):
        rng = random.Random(7)
        n_whole = n_all = 0
        for number in range(150):
            schema = random_schema(rng, 3)
            body = {"messages": [{"role": "user", "content": str(number)}], "max_tokens": 300, "seed": number, "n": rng.choice([1, 1, 3]),
                    "temperature": rng.choice([0, 1, 3]), "response_format": format_of(schema)}
            if rng.random() < 0.3:
                pieces, ends = {}, {}
                for chunk in self.server.stream(CHAT, {**body, "stream": True}):
                    for choice in chunk["choices"]:
                        pieces[choice["index"]] = pieces.get(choice["index"], "") + choice["delta"].get("content", "")
                        ends[choice["index"]] = choice["finish_reason"] or ends.get(choice["index"])
                got = [(pieces[i], ends[i]) for i in range(body["n"])]
            else:
                answer = self.server.post(CHAT, body)
                got = [(choice["message"]["content"], choice["finish_reason"]) for choice in answer["choices"]]
            for content, finish in got:
                with self.subTest(schema=json.dumps(schema), content=content):
                    n_whole += self.check_choice(schema, content, finish)
                    n_all += 1
        print(f"{n_whole} of {n_all} answers to random schemas are whole, and fit")
        self.assertGreater(n_whole, 0.8 * n_all)

    def test_json_objects(self):
        n_whole = 0
        for seed in range(10):
            answer = self.server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 400, "seed": seed, "temperature": 1,
                                                    "logit_bias": {}, "response_format": {"type": "json_object"}})["choices"][0]
            self.assertTrue(answer["text"].startswith("{"))
            if answer["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(answer["text"]), dict)
                n_whole += 1
        print(f"{n_whole} of 10 objects are whole")

    def test_recursion_and_references(self):
        schema = {"$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9},
                                             "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"], "additionalProperties": False}}}
        for seed in range(5):
            body = {"prompt": "x", "max_tokens": 400, "seed": seed, "response_format": format_of(schema)}
            choice = self.server.post(COMPLETIONS, body)["choices"][0]
            self.check_choice(schema, choice["text"], choice["finish_reason"])

    def test_text_generation_inference(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
        answer = self.server.post("/generate", {"inputs": "x", "parameters": {
            "grammar": {"type": "json", "value": schema}, "details": True}})
        checker(schema).validate(json.loads(answer["generated_text"]))
        self.assertEqual(answer["details"]["finish_reason"], "eos_token")
        error = self.server.post("/generate", {"inputs": "x", "parameters": {
            "grammar": {"type": "regex", "value": "a"}}}, 400)["error"]
        self.assertEqual(error["param"], "grammar")

    def test_forced_calls(self):
        """In each way of writing calls, also where the model's own is not known."""
        tools = [{"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {"n": {"$ref": "#/$defs/n"}, "unit": {"enum": ["C", "F"]}}, "required": ["n"],
            "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 50}}}}} for name in ("first", "second")]
        tools.append({"type": "function", "function": {"name": "bare"}})
        schemas = {tool["function"]["name"]: tool["function"].get("parameters", {"maxProperties": 0}) for tool in tools}
        for style in ("none", "hermes", "mistral", "llama3", "phi4"):
            with Server("-c", "512", "--tool-calls", style) as server:
                called = set()
                for number, choice in enumerate(["required"] * 6 + [{"type": "function", "function": {"name": "second"}}] * 2):
                    body = {"messages": [{"role": "user", "content": str(number)}], "tools": tools, "tool_choice": choice,
                            "max_tokens": 200, "temperature": 2, "seed": number}
                    if number % 2:
                        calls = []
                        for chunk in server.stream(CHAT, {**body, "stream": True}):
                            calls += chunk["choices"][0]["delta"].get("tool_calls", [])
                            self.assertFalse(chunk["choices"][0]["delta"].get("content"))
                            finish = chunk["choices"][0]["finish_reason"]
                    else:
                        answer = server.post(CHAT, body)["choices"][0]
                        calls, finish = answer["message"]["tool_calls"], answer["finish_reason"]
                        self.assertIsNone(answer["message"]["content"])
                    self.assertEqual(finish, "tool_calls" if choice == "required" else "stop")
                    call, = calls
                    called.add(call["function"]["name"])
                    checker(schemas[call["function"]["name"]]).validate(json.loads(call["function"]["arguments"]))
                    if choice != "required":
                        self.assertEqual(call["function"]["name"], "second")
                self.assertGreater(len(called), 1, style)

    def test_refusals(self):
        message = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        json_object = {"type": "json_object"}
        for change, param, word in (
                ({"response_format": format_of({"not": {}})}, "response_format", "'not'"),
                ({"response_format": format_of({"type": "array", "uniqueItems": True})}, "response_format", "uniqueItems"),
                ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
                ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema"),
                ({"response_format": {"type": "json_object", "schema": {}}}, "response_format", "schema"),
                ({"response_format": "json"}, "response_format", "object"),
                ({"tool_choice": "required"}, "tool_choice", "tools"),
                ({"tool_choice": "always", "tools": [tool]}, "tool_choice", "required"),
                ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [tool]}, "tool_choice", "'g'"),
                ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]},
                 "tools", "object"),
                ({"tool_choice": "required", "tools": [tool], "response_format": json_object}, "response_format", "tool"),
                ({"response_format": json_object, "ignore_eos": True}, None, "ignore_end"),
                ({"response_format": json_object, "min_tokens": 3}, None, "min_tokens"),
                ({"response_format": json_object, "use_beam_search": True}, None, "beam")):
            error = self.server.post(CHAT, {**message, **change}, 400)["error"]
            self.assertEqual(error["param"], param, (change, error))
            self.assertIn(word, error["message"], change)

    def test_many_at_once(self):
        """Held and free answers in one batch; some clients have gone before the end."""
        rng, failures = random.Random(3), []

        def ask(number):
            schema = random_schema(random.Random(number % 20), 2)
            body = {"messages": [{"role": "user", "content": str(number)}], "max_tokens": 150, "seed": number}
            if number % 3:
                body["response_format"] = format_of(schema)
            if number % 7 == 0:
                with self.server.socket() as connection:
                    data = json.dumps({**body, "stream": True}).encode()
                    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                       b"Content-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(data), data))
                    connection.recv(100)
                return
            choice = self.server.post(CHAT, body)["choices"][0]
            if number % 3 and not failures:
                try:
                    self.check_choice(schema, choice["message"]["content"], choice["finish_reason"])
                except Exception as error:  # told by the main thread
                    failures.append((schema, choice, error))
        threads = [threading.Thread(target=ask, args=(number,)) for number in rng.sample(range(1000), 40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.server.wait_until_idle()

    def test_large_schemas(self):
        names = ["".join(random.Random(i).choices(string.ascii_letters, k=8)) for i in range(200)]
        schema = {"type": "object", "properties": {name: {"type": "integer", "minimum": 0, "maximum": 9} for name in names}}
        choice = self.server.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 60,
                                         "response_format": format_of(schema)})["choices"][0]
        self.check_choice(schema, choice["message"]["content"], choice["finish_reason"])
        deep = {"type": "integer"}
        for _ in range(70):
            deep = {"items": deep}
        self.server.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "response_format": format_of(deep)}, 400)
        many = {"enum": [f"{i:06}" for i in range(20000)]}
        choice = self.server.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "response_format": format_of(many)})["choices"][0]
        self.check_choice(many, choice["message"]["content"], choice["finish_reason"])
        huge = {"type": "object", "properties": {name: {"type": "string", "maxLength": 2000} for name in names}}
        error = self.server.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "response_format": format_of(huge)}, 400)["error"]
        self.assertIn("too large", error["message"])


isomer.main()
