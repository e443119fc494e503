#!/usr/bin/env python3
"""Conversations with calls of tools, as chat templates get them.   test_serve_messages.py PATH_TO_ISOMER"""
import json
import pathlib
import tempfile
import unittest

import isomer
from serving import CHAT, Server

WITH_CALLS = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}"
              "{% for call in m.tool_calls or [] %}({{ call.function.name }} {{ call.function.arguments | tojson }}){% endfor %}{% endfor %}")


class Messages(unittest.TestCase):
    def serve(self, template, *options):
        folder = tempfile.TemporaryDirectory(prefix="isomer-test-")
        self.addCleanup(folder.cleanup)
        isomer.run("synth", "tiny-llama", folder.name + "/tiny/", "--scheme", "f32")
        pathlib.Path(folder.name, "tiny/chat_template.jinja").write_text(template)
        server = Server("-t", "1", *options, model=folder.name + "/tiny/")
        self.addCleanup(server.stop)
        return server

    def read(self, server, messages):
        """What the model is shown of them."""
        ids = server.post("/tokenize", {"messages": messages, "add_special_tokens": False})["tokens"]
        return server.post("/detokenize", {"tokens": ids})["prompt"]

    def conversation(self, *functions, **more):
        calls = [{"id": str(i), "type": "function", "function": function} for i, function in enumerate(functions)]
        return [{"role": "user", "content": "u"}, {"role": "assistant", **more, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "0", "content": "42"}]

    def test_a_call_without_arguments_has_none(self):
        server = self.serve(WITH_CALLS)
        self.assertEqual(self.read(server, self.conversation({"name": "f", "arguments": '{"a": 1}'}, content=None)),
                         '[user]u[assistant](f {"a": 1})[tool]42')
        for none in ({"arguments": ""}, {"arguments": " \n"}, {"arguments": "{}"}, {"arguments": {}}, {"arguments": None}, {}):
            self.assertEqual(self.read(server, self.conversation({"name": "f", **none}, content=None)),
                             "[user]u[assistant](f {})[tool]42", none)

    def test_no_calls_are_no_calls(self):
        """Llama's and Mistral's templates ask whether there is a list, not what is in it."""
        server = self.serve("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if 'tool_calls' in m %}({{ m.tool_calls[0].function.name }}){% endif %}{% endfor %}")
        for none in ({}, {"tool_calls": None}, {"tool_calls": []}):
            messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", **none}]
            self.assertEqual(self.read(server, messages), "[user]u[assistant]a", none)
        self.assertEqual(self.read(server, self.conversation({"name": "f"})), "[user]u[assistant](f)[tool]42")

    def test_calls_that_a_template_does_not_write_are_text(self):
        """As clients send back what the server answered, with no content; in the way of the model's calls."""
        plain = "{% for m in messages %}{{ '[' + m.role + ']' + m['content'] }}{% endfor %}"
        f, g = {"name": "f", "arguments": '{"a":1.0, "b": "é"}'}, {"name": "g", "arguments": ""}
        written = '{"name": "f", "arguments": {"a": 1.0, "b": "é"}}', '{"name": "g", "arguments": {}}'
        for kind, text in (("auto", "; ".join(written)), ("hermes", "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written)),
                           ("mistral", f"[TOOL_CALLS] [{', '.join(written)}]"), ("llama3", "; ".join(written).replace("arguments", "parameters")),
                           ("phi4", f"<|tool_call|>[{', '.join(written)}]<|/tool_call|>")):
            server = self.serve(plain, "--tool-calls", kind)
            for content in (None, ""):
                self.assertEqual(self.read(server, self.conversation(f, g, content=content)), f"[user]u[assistant]{text}[tool]42")
            self.assertEqual(self.read(server, self.conversation(f, g, content="I ask.")), f"[user]u[assistant]I ask.\n{text}[tool]42")
        self.assertEqual(self.read(self.serve(WITH_CALLS), self.conversation(f, content="I ask.")),
                         '[user]u[assistant]I ask.(f {"a": 1.0, "b": "é"})[tool]42')
        server = self.serve(plain)
        for odd in ({}, {"name": 1}, {"function": {}}, {"function": "f"}, 1):  # none of them is a call, and all are answered
            status, _, body = server.request("POST", "/tokenize", {"messages": [{"role": "assistant", "content": "a", "tool_calls": [odd]}]})
            self.assertIn(status, (200, 400), (odd, body))

    def test_a_forced_call_goes_back_as_it_came(self):
        server = self.serve("{% for m in messages %}{{ '[' + m.role + ']' + m['content'] }}{% endfor %}")
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1]}},
                                                                            "required": ["a"], "additionalProperties": False}}}
        messages = [{"role": "user", "content": "u"}]
        message = server.post(CHAT, {"messages": messages, "tools": [tool], "tool_choice": "required", "max_tokens": 80})["choices"][0]["message"]
        self.assertIsNone(message["content"])
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42"}
        answer = server.post(CHAT, {"messages": messages + [message, result], "max_tokens": 1})
        self.assertEqual(answer["usage"]["completion_tokens"], 1)


if __name__ == "__main__":
    isomer.main()
