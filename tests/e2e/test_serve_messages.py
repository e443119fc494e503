#!/usr/bin/env python3
"""Conversations with calls of tools, as chat templates get them.   test_serve_messages.py PATH_TO_ISOMER"""
import json
import pathlib
import tempfile
import unittest

import isomer
from serving import Server

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


if __name__ == "__main__":
    isomer.main()
