#!/usr/bin/env python3
"""bench/serve.py against the server, beside one that another would write.   test_serve_bench.py PATH_TO_ISOMER"""
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import isomer
from serving import tiny_model

BENCH = os.path.join(isomer.SOURCE, "bench", "serve.py")


class Other(http.server.BaseHTTPRequestHandler):
    """Streams "x" as often as asked, two milliseconds apart; every tenth answer breaks off."""
    protocol_version = "HTTP/1.1"
    count = 0
    is_strict = False  # like OpenAI's own: keys, no ignore_eos, no max_tokens of chats; and an answer that ends with its connection
    asked = []

    def log_message(self, *arguments):
        pass

    def chunk(self, event):
        text = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": "other-model"}]})

    def stream_strictly(self, body):
        if self.headers["Authorization"] != "Bearer sesame":
            return self.answer(401, {"error": {"message": "no key"}})
        for name in "ignore_eos", "max_tokens":
            if name in body:
                return self.answer(400, {"error": {"message": f"no {name}; use max_completion_tokens" if name == "max_tokens" else name}})
        Other.asked.append((self.path, body))
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for _ in range(body["max_completion_tokens"] // 2):
            self.wfile.write(b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n')
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Other.is_strict:
            return self.stream_strictly(body)
        Other.count += 1
        breaks = Other.count % 10 == 5
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(body["max_tokens"]):
            if breaks and number == 3:
                self.close_connection = True
                return
            time.sleep(0.002)
            self.chunk({"choices": [{"index": 0, "text": "x", "finish_reason": None}]})
        self.chunk({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": body["max_tokens"]}})
        self.chunk(b"[DONE]")
        self.wfile.write(b"0\r\n\r\n")


def python_with_matplotlib():
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode == 0:
            return python
    print("SKIPPED: no Python with matplotlib; scripts/install-packages installs it")
    sys.exit(isomer.SKIPPED)


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = python_with_matplotlib()
        cls.isomer = (f"isomer={isomer.BINARY} serve {tiny_model()} -c 8192 -t 1 --max-sequences 8 --kv-memory 80 "
                      "--access-log none --port {port}")
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
        cls.other = f"other=http://127.0.0.1:{cls.server.server_port}"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def bench(self, *arguments, code=0, **options):
        done = subprocess.run([self.python, BENCH, *arguments], capture_output=True, text=True, timeout=120, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_fewer_clients_than_processes(self):
        Other.count = 5
        shown = self.bench(self.other, "--requests", "3", "--concurrency", "1", "--processes", "4", "--lengths", "20:4")
        self.assertRegex(shown, r"requests answered \| 3 ")
        self.assertRegex(shown, r"failed \| 0 ")

    def test_requests_before_those_that_count(self):
        Other.count = 2  # answers 5 and 15 break off, which are two of the twelve
        shown = self.bench(self.other, "--requests", "5", "--warm-up", "12", "--concurrency", "3", "--lengths", "20:4")
        self.assertEqual(Other.count, 2 + 2 + 12 + 5)
        self.assertRegex(shown, r"requests answered \| 5 ")
        self.assertIn("5 requests after 12 others, 3 clients", shown)

    def test_without_matplotlib_nothing_is_measured(self):
        """And it is said which Python has none: one of a user's own often stands before Debian's."""
        Other.count = 0
        done = subprocess.run(["/usr/bin/python3", "-S", BENCH, self.other, "--output", "never"], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual((done.returncode, done.stdout, Other.count), (1, "", 0))
        self.assertRegex(done.stderr, "matplotlib, which /usr/bin/python3[.0-9]* does not have")
        self.assertIn("python3-matplotlib", done.stderr)

    def test_two_servers_side_by_side(self):
        with tempfile.TemporaryDirectory() as folder:
            Other.count = 0
            shown = self.bench(self.isomer, self.other, "--requests", "20", "--concurrency", "4", "--lengths", "20:12",
                               "--idle", "300", "--output", folder + "/result")
            results = json.loads(pathlib.Path(folder, "result.json").read_text())
            ours, other = results["isomer"], results["other"]
            self.assertEqual((ours["answered"], ours["failed"]), (20, 0))
            self.assertEqual((other["answered"], other["failed"]), (18, 2))
            self.assertEqual((len(ours["first"]), len(other["first"])), (20, 18))
            self.assertEqual(len(other["between"]), 18 * 11)
            # A busy machine reads several at once, but not all of them.
            self.assertGreaterEqual(max(other["between"]), 0.0019)
            self.assertLess(sum(other["between"]), sum(other["whole"]))
            self.assertGreaterEqual(min(other["whole"]), 12 * 0.002)
            self.assertAlmostEqual(other["output_per_second"], 18 * 12 / other["seconds"], 3)
            self.assertEqual(ours["idle_connections"], 300)
            self.assertLess(ours["idle_bytes"], 300 * 25000)
            text = pathlib.Path(folder, "result.md").read_text()
            for row in ("| output tokens/s |", "| first token, p99, ms |", "| between tokens, p50, ms |", "| | isomer | other |"):
                self.assertIn(row, text)
                self.assertIn(row, shown)
            self.assertIn("<svg", pathlib.Path(folder, "result.svg").read_text())

    def test_open_loop_and_lengths(self):
        for lengths in ("random", "chat"):
            shown = self.bench(self.isomer, "--requests", "12", "--rate", "40", "--lengths", lengths, "--vocabulary", "250")
            self.assertIn("| requests answered | 12 |", shown)
            self.assertIn("40 requests a second", shown)

    def test_one_command_measures_and_plots(self):
        """Without a server the one of this build is started; the table and the plot lie where one stands."""
        with tempfile.TemporaryDirectory() as folder:
            shown = self.bench("--gguf", tiny_model(), "--requests", "8", "--concurrency", "2", "--lengths", "10:6", cwd=folder,
                               env={**os.environ, "ISOMER_BIN": isomer.BINARY, "PATH": "/usr/bin:/bin"})
            text = pathlib.Path(folder, "serve.md").read_text()
            self.assertIn("| requests answered | 8 |", shown)
            for part in ("| output tokens/s |", "| first token, p99, ms |", "- isomer: `isomer serve tiny.gguf -c 4096 -t ", "cores", "serve.svg"):
                self.assertIn(part, text)
            self.assertIn("<svg", pathlib.Path(folder, "serve.svg").read_text())

    def test_servers_of_another_kind(self):
        """Keys, chats, fields refused, no usage, and an answer in one piece: OpenAI's API as others have it."""
        Other.is_strict = True
        try:
            url, environment = self.other.partition("=")[2], {**os.environ, "OPENAI_API_KEY": "sesame"}
            for where in (url, url + "/v1"):
                Other.asked.clear()
                shown = self.bench(where, "--chat", "--requests", "4", "--concurrency", "2", "--lengths", "9:8", env=environment)
                self.assertIn("| requests answered | 4 |", shown)
                self.assertIn("refuses ignore_eos", shown)
                self.assertEqual({path for path, _ in Other.asked}, {"/v1/chat/completions"})
                self.assertEqual({body["model"] for _, body in Other.asked}, {"other-model"})
                self.assertEqual(len(Other.asked[-1][1]["messages"][0]["content"].split()), 9)
            self.assertIn("no key", self.bench(url, "--chat", code=1, env={**os.environ, "OPENAI_API_KEY": "x"}))
            self.assertIn("{port}", self.bench("isomer serve model.gguf", code=1))
        finally:
            Other.is_strict = False

    def test_a_server_that_does_not_start_is_said(self):
        shown = self.bench(f"isomer={isomer.BINARY} serve /no/such/model --port {{port}}", code=1)
        self.assertIn("does not start", shown)


if __name__ == "__main__":
    isomer.main()
