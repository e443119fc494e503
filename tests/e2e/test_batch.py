#!/usr/bin/env python3
"""`isomer batch` on a small random model: order, overrides, errors a line, resumption, Ctrl-C."""
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import isomer


class Batch(unittest.TestCase):
    OPTIONS = ("--seed", "1", "-n", "8", "-c", "512", "--kv-memory", "8")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.folder.name)
        cls.model = cls.work / "model.gguf"
        isomer.run("synth", "tiny-llama", cls.model, "--scheme", "q8_0")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def batch(self, lines, *options, code=0, output=None):
        source = self.work / "in.jsonl"
        source.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n"
                                  for line in lines))
        extra = ["-o", output] if output else []
        done = isomer.run("batch", self.model, source, *self.OPTIONS, *options, *extra, code=code)
        text = output.read_text() if output else done.stdout
        return [json.loads(line) for line in text.splitlines()]

    def test_order_and_overrides(self):
        lines = [{"prompt": "a b c"[:1 + i % 5], "max_tokens": 1 + i * 7 % 30, "id": f"line {i}",
                  "ignore_end": True} for i in range(60)]
        answers = self.batch(lines)
        self.assertEqual([a["index"] for a in answers], list(range(60)))
        for line, answer in zip(lines, answers):
            self.assertEqual(answer["id"], line["id"])
            self.assertEqual(answer["n_output"], line["max_tokens"])
            self.assertEqual(answer["finish_reason"], "length")

    def test_three_kinds_of_prompt(self):
        greedy = {"temperature": 0, "ignore_end": True}
        answers = self.batch([{"src": "hello", **greedy},
                              {"messages": [{"role": "user", "content": "hello"}], **greedy},
                              {"prompt": "hello", **greedy}])
        self.assertEqual(answers[0]["text"], answers[1]["text"])
        self.assertGreater(answers[0]["n_prompt"], answers[2]["n_prompt"])
        run = isomer.run_json("run", self.model, "-p", "hello", "--temp", "0", "-n", "8")
        self.assertEqual(run["text"], answers[0]["text"][:len(run["text"])])

    def test_messages_as_clients_send_them(self):
        """What a server is sent is the same conversation here: what a template is shown has a token a byte."""
        folder = self.work / "calls"
        isomer.run("synth", "tiny-llama", f"{folder}/", "--scheme", "f32")
        (folder / "chat_template.jinja").write_text("{{ messages | tojson }}")
        def shown(*messages):
            lines = self.work / "messages.jsonl"
            lines.write_text(json.dumps({"messages": messages}) + "\n")
            return json.loads(isomer.run("batch", folder, lines, "-n", 1).stdout)["n_prompt"]
        user, call = {"role": "user", "content": "a\nb"}, {"name": "f", "arguments": {"a": 1}}
        plain = shown(user)
        self.assertEqual(shown({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), plain)
        self.assertEqual(shown({**user, "name": None, "tool_calls": []}), plain)
        self.assertEqual(shown({"role": "developer", "content": "s"}), shown({"role": "system", "content": "s"}))
        self.assertEqual(shown({"role": "assistant", "tool_calls": [{"function": {**call, "arguments": '{"a": 1}'}}]}),
                         shown({"role": "assistant", "tool_calls": [{"function": call}]}))
        bad = self.batch([{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {"messages": [user, {"role": "user"}]}], code=1)
        self.assertIn("reads text only", bad[0]["error"])
        self.assertIn("'messages[1]'", bad[1]["error"])

    def test_choices_beams_stop_and_seed(self):
        answers = self.batch([
            {"prompt": "x", "n": 3, "temperature": 1, "ignore_end": True},
            {"prompt": "x", "n": 2, "beam_width": 4, "ignore_end": True},
            {"prompt": "x", "seed": 9, "ignore_end": True},
            {"prompt": "x", "seed": 9, "ignore_end": True},
        ])
        self.assertEqual([len(a["choices"]) for a in answers[:2]], [3, 2])
        self.assertEqual(answers[0]["n_output"], 24)
        self.assertEqual(self.batch([{"prompt": "x", "seed": 9, "ignore_end": True}])[0]["text"],
                         answers[2]["text"])
        text = next(a["text"] for a in answers[2:] if len(a["text"]) > 1)
        stopped = self.batch([{"prompt": "x"}] * 2 + [{"prompt": "x", "seed": 9, "stop": text[-1],
                                                       "ignore_end": True}])[2]
        self.assertEqual(stopped["text"], text[:text.index(text[-1])])
        self.assertEqual(stopped["finish_reason"], "stop")

    def test_schemas(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}}, "required": ["a", "b"]}
        answers = self.batch([{"prompt": "x", "schema": schema, "max_tokens": 60, "temperature": 1, "n": 2}, {"prompt": "x", "ignore_end": True},
                              {"src": "x", "schema": schema, "max_tokens": 60}])
        for text in (*(choice["text"] for choice in answers[0]["choices"]), answers[2]["text"]):
            value = json.loads(text)
            self.assertIn(value["a"], (1, 2))
            self.assertIsInstance(value["b"], bool)

    def test_bad_lines_are_answered(self):
        bad = ["no json\n", "[1]\n", '{"prompt": 5}\n', "{}\n", '{"prompt": "a", "src": "b"}\n',
               '{"prompt": ""}\n', '{"prompt": "a", "max_tokens": -1}\n', '{"prompt": "a", "n": 1e9}\n',
               '{"prompt": "a", "temprature": 1}\n', '{"prompt": "a", "stop": [1]}\n',
               '{"prompt": "a", "schema": {"not": {}}}\n', '{"prompt": "a", "top_p": "x"}\n', '{"messages": [5]}\n',
               json.dumps({"prompt": "word " * 2000}) + "\n", "[" * 5000 + "\n"]
        good = {"prompt": "a", "ignore_end": True}
        answers = self.batch([good, *bad, "\n", good], code=1)
        self.assertEqual(len(answers), len(bad) + 2)
        for answer in (answers[0], answers[-1]):
            self.assertNotIn("error", answer)
        for line, answer in zip(bad, answers[1:-1]):
            self.assertGreater(len(answer["error"]), 5, line)
        self.assertIn("temperature", answers[1 + 8]["error"])

    def test_goes_on_where_it_was_cut(self):
        lines = [{"prompt": f"{i}", "ignore_end": True, "temperature": 1} for i in range(20)]
        output = self.work / "out.jsonl"
        whole = self.batch(lines, output=output)
        text = output.read_bytes()
        for cut in (0, 1, len(text) // 2, len(text) - 1, len(text)):
            output.write_bytes(text[:cut])
            again = self.batch(lines, output=output)
            self.assertEqual([a["text"] for a in again], [a["text"] for a in whole])
            self.assertTrue(output.read_bytes().startswith(text[:cut].rpartition(b"\n")[0]))
        source = self.work / "in.jsonl"
        source.write_text("\r\n\n".join(map(json.dumps, lines)))  # the same requests
        isomer.run("batch", self.model, source, "-o", output)
        lines[7]["prompt"] = "8"  # and others
        self.batch(lines, output=None)
        done = isomer.run("batch", self.model, source, "-o", output, code=2)
        self.assertIn("line 8 answers another request", done.stderr)
        self.assertEqual(output.read_bytes(), text)
        output.unlink()

    def test_other_files_are_left_alone(self):
        source, output = self.work / "in.jsonl", self.work / "notes.txt"
        lines = [{"prompt": f"{i}", "ignore_end": True} for i in range(3)]
        answers = [b'{"index":%d,"text":"a","finish_reason":"stop"}\n' % i for i in range(4)]
        for content in (b"notes\n", b"notes", b"\n", b"{}", answers[1], answers[0] + b"more\n",
                        answers[0] + answers[0], answers[0] + answers[1][:-1].replace(b"1", b"2"),
                        b"".join(answers)):
            output.write_bytes(content)
            self.batch(lines, output=None)
            isomer.run("batch", self.model, source, "-o", output, code=2)
            self.assertEqual(output.read_bytes(), content)
        output.unlink()
        requests = source.read_bytes()
        isomer.run("batch", self.model, source, "-o", source, code=2)
        self.assertEqual(source.read_bytes(), requests)
        source.write_bytes(answers[0])
        isomer.run("batch", self.model, source, "-o", source, code=2)
        self.assertEqual(source.read_bytes(), answers[0])

    def test_two_runs_do_not_share_an_output(self):
        source, output = self.work / "in.jsonl", self.work / "shared.out"
        self.batch([{"prompt": f"{i}", "ignore_end": True} for i in range(3)])
        with open(output, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as another run does
            done = isomer.run("batch", self.model, source, *self.OPTIONS, "-o", output, code=1)
        self.assertIn("being written by another", done.stderr)
        self.assertEqual(output.read_bytes(), b"")
        source.write_text("".join(json.dumps({"prompt": f"{i}", "ignore_end": True, "max_tokens": 200}) + "\n" for i in range(200)))
        runs = [subprocess.Popen([isomer.BINARY, "batch", self.model, source, "-c", "512", "-o", output], stderr=subprocess.PIPE, text=True)
                for _ in range(2)]
        errors = [run.communicate(timeout=120)[1] for run in runs]
        self.assertEqual(sorted(run.returncode for run in runs), [0, 1], errors)
        self.assertEqual([json.loads(line)["index"] for line in output.read_text().strip().split("\n")], list(range(200)))

    def test_output_without_a_file(self):
        line = {"prompt": "x", "ignore_end": True}
        text = self.batch([line])[0]["text"]
        source = self.work / "in.jsonl"
        for path in ("-", "/dev/stdout"):
            printed = isomer.run("batch", self.model, source, *self.OPTIONS, "-o", path).stdout
            self.assertEqual(json.loads(printed)["text"], text)
        isomer.run("batch", self.model, source, *self.OPTIONS, "-o", "/dev/null")

    def test_output_that_fills_the_disk(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        output = self.work / "full.out"
        self.batch([{"prompt": f"{i}", "ignore_end": True, "max_tokens": 20} for i in range(400)])
        done = isomer.run("batch", self.model, self.work / "in.jsonl", *self.OPTIONS, "-o", output, code=1,
                          preexec_fn=limit, restore_signals=False)
        self.assertIn("cannot write the answers: File too large", done.stderr)
        output.unlink()

    def test_interrupt_leaves_whole_lines(self):
        source, output = self.work / "long.jsonl", self.work / "long.out"
        source.write_text("".join(json.dumps({"prompt": f"{i}", "ignore_end": True,
                                              "max_tokens": 20 + i}) + "\n" for i in range(400)))
        process = subprocess.Popen([isomer.BINARY, "batch", self.model, source, "-o", output, "-c",
                                    "512", "--kv-memory", "4", "--seed", "1"],
                                   stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (output.exists() and output.stat().st_size > 0):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("tokens/s", errors)
        for index, line in enumerate(output.read_text().splitlines(keepends=True)):
            self.assertTrue(line.endswith("\n"))
            self.assertEqual(json.loads(line)["index"], index)

    def on_a_terminal(self, lines, *options, interrupt_at=None):
        """What a terminal shows of a run, whose answers are dropped; and its exit code."""
        source = self.work / "in.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        ours, theirs = pty.openpty()
        process = subprocess.Popen([isomer.BINARY, "batch", self.model, source, *self.OPTIONS, *options], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the last one has closed it
                break
            shown += part
            if interrupt_at and interrupt_at in shown:
                process.send_signal(signal.SIGINT)
                interrupt_at = None
        os.close(ours)
        return shown.decode().replace("\r\n", "\n"), process.wait(60)

    def test_progress(self):
        """The bar is of requests that are answered, not of those that were read; its end comes once."""
        lines = [{"prompt": f"{i}", "ignore_end": True, "max_tokens": 40} for i in range(300)]
        shown, code = self.on_a_terminal(lines, "--max-sequences", "4")
        self.assertEqual(code, 0)
        shares = [int(share) for share in re.findall(r"requests \[[#.]*\] +(\d+)%", shown)]
        self.assertLess(shares[0], 50, shown)
        self.assertEqual(shares, sorted(shares))
        self.assertEqual(shares.count(100), 1, shown)
        self.assertRegex(shown, r"100%[^\n]*\n300 requests, 0 failed; .* output tokens/s\n$")

    def test_an_interrupted_bar_ends_its_line(self):
        lines = [{"prompt": f"{i}", "ignore_end": True, "max_tokens": 400} for i in range(300)]
        shown, code = self.on_a_terminal(lines, "--max-sequences", "1", interrupt_at=b"requests [")
        self.assertEqual(code, 1)
        self.assertRegex(shown, r"requests \[[^\n]*\n\d+ requests, 0 failed; .*\n$")

    def test_usage(self):
        isomer.run("batch", self.model, code=2)
        isomer.run("batch", self.model, self.work / "absent.jsonl", code=1)


isomer.main()
