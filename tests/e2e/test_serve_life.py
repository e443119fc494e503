#!/usr/bin/env python3
"""The server's life with a tiny model: options, start, stop, keys, logs.   test_serve_life.py PATH_TO_ISOMER"""
import http.client
import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import isomer
from serving import CHAT, COMPLETIONS, Server, error_of, tiny_model


class Life(unittest.TestCase):
    def test_api_keys_and_origins(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("from-file\n\nanother\r\n")
            keys.flush()
            with Server("--api-key", "secret", "--api-key-file", keys.name, "--cors-origin", "https://good.example") as server:
                self.assertNotIn("secret", "".join(server.lines))
                for key, status in (("secret", 200), ("from-file", 200), ("another", 200), ("secre", 401),
                                    ("secrets", 401), ("", 401), (None, 401)):
                    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
                    got, _, body = server.request("GET", "/v1/models", headers=headers)
                    self.assertEqual(got, status, (key, body))
                for path, status in (("/health", 200), ("/", 200), ("/openapi.json", 200), ("/metrics", 401), ("/info", 401)):
                    self.assertEqual(server.request("GET", path)[0], status)
                good = {"Authorization": "Bearer secret", "Origin": "https://good.example"}
                status, headers, _ = server.request("OPTIONS", CHAT, headers=good)
                self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (204, "https://good.example"))
                self.assertIn("Authorization", headers["Access-Control-Allow-Headers"])
                # What OpenAI's client sends from a page, and a list that is none.
                for wanted, allowed in (("authorization,content-type,x-stainless-lang,x-stainless-os", "x-stainless-os"),
                                        ("x-good, x(bad)", "Content-Type")):
                    asked = {**good, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
                    got = server.request("OPTIONS", CHAT, headers=asked)[1]["Access-Control-Allow-Headers"]
                    self.assertIn(allowed, got)
                    self.assertNotIn("(", got)
                status, headers, _ = server.request("POST", "/tokenize", {"prompt": "a"}, good)
                self.assertEqual((status, headers["Access-Control-Expose-Headers"]), (200, "X-Request-Id, Retry-After"))
                bad = {**good, "Origin": "https://evil.example"}
                status, headers, body = server.request("POST", "/tokenize", {"prompt": "a"}, bad)
                self.assertEqual((status, error_of(body)["code"]), (403, "origin_not_allowed"))
                self.assertNotIn("Access-Control-Allow-Origin", headers)
                asked = {**bad, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
                self.assertNotIn("Access-Control-Allow-Headers", server.request("OPTIONS", CHAT, headers=asked)[1])
                same = {**good, "Origin": f"http://127.0.0.1:{server.port}"}
                self.assertEqual(server.request("POST", "/tokenize", {"prompt": "a"}, same)[0], 200)

    def test_log_and_prompts(self):
        for extra in ([], ["--log-prompts"]):
            server = Server(*extra)
            server.post(COMPLETIONS, {"prompt": "the secret words", "max_tokens": 2})
            server.request("GET", "/nowhere")
            server.stop()
            rows = [json.loads(line) for line in server.log]
            self.assertEqual([(r["path"], r["status"]) for r in rows], [(COMPLETIONS, 200), ("/nowhere", 404)])
            self.assertGreater(rows[0]["prompt_tokens"], 0)
            self.assertGreater(rows[0]["total_ms"], 0)
            self.assertEqual("the secret words" in "".join(server.log), bool(extra))

    def test_config_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            def write(value):
                config.seek(0)
                config.truncate()
                config.write(value if isinstance(value, str) else json.dumps(value))
                config.flush()
            write({"served-model-name": "from-file", "max-sequences": 3, "api-key": ["k"], "ctx-size": 128,
                   "no-prefix-cache": True, "verbose": False})
            with Server("--config", config.name, "--max-sequences", "5") as server:
                shown = "".join(server.lines)
                shown = json.loads(shown[:shown.index("\n}") + 2])
                self.assertEqual((shown["served-model-name"], shown["max-sequences"], shown["ctx-size"]), ("from-file", 5, 128))
                self.assertEqual(shown["api-key"], ["(not shown)"])
                info = json.loads(server.request("GET", "/info", headers={"Authorization": "Bearer k"})[2])
                self.assertEqual((info["max_concurrent_requests"], info["prefix_cache"]), (5, False))
            for value, words in (({"prot": 1}, "port"), ({"port": "x"}, "whole number"), ({"port": 70000}, "65535"),
                                 ({"hots": None}, "host"), ("{", "JSON"), ([], "object"), ({"port": {}}, "string"),
                                 ({"config": "x"}, "command line"), ({"help": True}, "command line"),
                                 ({"": True}, "unknown option \"\""), ({"port=1": 2}, "port"), ({"port": [1]}, "string"),
                                 ({"host": True, "port": 1}, "needs a value"), ({"port": False}, "needs a value"),
                                 ({"no-prefix-cache": 1}, "no value"), ({"api-key": [["k"]]}, "array of strings")):
                write(value)
                done = subprocess.run([isomer.BINARY, "serve", tiny_model(), "--config", config.name],
                                      capture_output=True, text=True, timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertIn(config.name, done.stderr)
            write({"api-key": shown["api-key"]})  # what anyone can read is no key
            done = subprocess.run([isomer.BINARY, "serve", tiny_model(), "--config", config.name],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn("key itself", done.stderr)

    def test_options_of_the_engine_reach_it(self):
        """Each shows in what the server says of itself, and none in what it answers."""
        bodies = [{"prompt": f"{n} " * (5 + n), "max_tokens": 160, "temperature": 0, "ignore_eos": True} for n in range(8)]

        def ask(*options):
            with Server("-c", "256", "-t", "1", *options) as server:
                answers = [None] * len(bodies)

                def post(n):
                    answers[n] = server.post(COMPLETIONS, bodies[n])["choices"][0]["text"]
                threads = [threading.Thread(target=post, args=(n,)) for n in range(len(bodies))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                return answers, json.loads(server.get("/info")), server.wait_until_idle()
        with tempfile.TemporaryDirectory(prefix="isomer-test-") as folder:
            isomer.run("quantize", tiny_model(), folder + "/draft.gguf", "--scheme", "q8_0")  # a quarter of the bytes
            plain, info, _ = ask()
            self.assertEqual((info["page_size"], info["batching"], info["max_concurrent_requests"], info["max_queue"], info["prefix_cache"]),
                             (64, "continuous", 64, 1024, True))
            little = ("--page-size", "16", "--kv-memory", "1", "--batching", "static", "--max-queue", "77", "--max-sequences", "8",
                      "--no-prefix-cache", "-b", "40")
            answers, info, metrics = ask(*little)
            self.assertEqual(answers, plain)
            self.assertEqual([info[name] for name in ("page_size", "batching", "max_concurrent_requests", "max_queue", "prefix_cache",
                                                      "max_batch_tokens")], [16, "static", 8, 77, False, 40])
            self.assertEqual(info["kv_pages"], 2**20 // (16 * 2048))
            self.assertGreater(metrics["isomer_engine_preempted_total"], 0)
            self.assertEqual(metrics["isomer_engine_swapped_pages_total"], 0)
            answers, _, metrics = ask(*little, "--swap-memory", "4")
            self.assertEqual(answers, plain)
            self.assertGreater(metrics["isomer_engine_swapped_pages_total"], 0)
            answers, _, metrics = ask("--speculation", "draft", "--draft-model", folder + "/draft.gguf", "--max-sequences", "1")
            self.assertEqual(answers, plain)
            self.assertGreater(metrics["isomer_engine_accepted_total"], 100)

    def test_port_taken_is_said_before_loading(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = subprocess.run([isomer.BINARY, "serve", tiny_model(), "--port", str(taken.getsockname()[1])],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is taken", done.stderr)
            self.assertIn("--port", done.stderr)

    def test_what_cannot_be_served_is_refused(self):
        for arguments, words in ((["/no/such/model.gguf"], "/no/such/model.gguf"),
                                 ([tiny_model(), "--device", "cuda:7"], "cuda"),
                                 ([tiny_model(), "--max-sequences", "65536", "--kv-memory", "1000000"], "free"),
                                 ([tiny_model(), "--host", "no.such.host.invalid"], "no.such.host.invalid"),
                                 ([tiny_model(), "--batching", "sometimes"], "continuous"),
                                 ([tiny_model(), "--tool-calls", "some"], "hermes"),
                                 ([tiny_model(), "--kv-memory", "1", "--page-size", "1024", "-c", "1024"],
                                  "room for 1.0 MB"),
                                 ([tiny_model(), "--cors-origin", "https://good.example/"], "is no origin"),
                                 ([tiny_model(), "--cors-origin", "good.example"], "is no origin"),
                                 ([tiny_model(), "--allowed-host", "good.example:443"], "is no name"),
                                 ([tiny_model(), "--served-model-name", ""], "is empty"),
                                 ([tiny_model(), "a", "b"], "too many")):
            done = subprocess.run([isomer.BINARY, "serve", *arguments, "--port", "0"], capture_output=True,
                                  text=True, timeout=60)
            self.assertIn(done.returncode, (1, 2), (arguments, done))
            self.assertIn(words, done.stderr.splitlines()[-1], arguments)

    @unittest.skipUnless("lo" in pathlib.Path("/proc/net/if_inet6").read_text()
                         if os.path.exists("/proc/net/if_inet6") else False, "no IPv6 here")
    def test_the_address_is_said_as_a_browser_takes_it(self):
        with Server("--host", "::1") as server:
            url = re.search(r"http://[^ ]+", server.lines[-1])[0]
            with urllib.request.urlopen(url + "/health/live") as answer:
                self.assertEqual(answer.status, 200)

    def test_sigterm_lets_requests_end(self):
        server = Server("-c", "4096", "-t", "1")
        body = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        events = server.stream(COMPLETIONS, body)
        next(events)
        idle = server.connect()
        idle.request("GET", "/health/live")
        idle.getresponse().read()
        server.process.send_signal(signal.SIGTERM)
        rest = list(events)
        self.assertEqual(rest[-1]["choices"][0]["finish_reason"], "length")
        server.process.wait(60)
        server.end()
        idle.close()
        self.assertEqual(server.process.returncode, 0)
        with self.assertRaises(OSError):
            server.request("GET", "/health")

    def test_second_sigterm_ends_now(self):
        server = Server("-c", "16384", "-t", "1")
        events = server.stream(COMPLETIONS, {"prompt": "a", "max_tokens": 16000, "ignore_eos": True, "stream": True})
        next(events)
        server.process.send_signal(signal.SIGTERM)
        while not any("stopping" in line for line in server.lines):
            self.assertIsNone(server.process.poll(), "a request is at hand")
            time.sleep(0.01)
        time.sleep(0.1)
        self.assertIsNone(server.process.poll(), "a request is at hand")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        server.end()
        self.assertEqual(server.process.returncode, 0)
        with self.assertRaises((AssertionError, OSError, http.client.HTTPException)):
            list(events)

    def test_time_limit_and_full_queue(self):
        with Server("-c", "16384", "-t", "1", "--request-timeout", "1.5", "--max-sequences", "1", "--max-queue", "1") as server:
            long = {"prompt": "a", "max_tokens": 16000, "ignore_eos": True}
            answers = []
            for _ in range(20):  # on a machine so busy that three do not meet, once more
                threads = [threading.Thread(target=lambda: answers.append(server.request("POST", COMPLETIONS, long)))
                           for _ in range(6)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if 429 in (status for status, _, _ in answers):
                    break
            statuses = sorted(status for status, _, _ in answers)
            self.assertEqual(set(statuses), {429, 504}, statuses)
            for status, headers, body in answers:
                self.assertEqual(error_of(body)["code"], "rate_limit_exceeded" if status == 429 else "timeout")
                self.assertEqual("Retry-After" in headers, status == 429)
            server.wait_until_idle()

    def test_a_stop_while_loading_is_a_stop(self):
        def caught(server):
            """Whether the server looks after SIGTERM by now."""
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> signal.SIGTERM - 1 & 1
        n_stopped = 0
        for _ in range(200):  # until twice the model was not there yet
            server = Server(wait=False)
            while not caught(server):
                time.sleep(0.0002)
            server.stop()
            n_stopped += "not loaded yet" in "".join(server.lines)
            if n_stopped == 2:
                break
        self.assertEqual(n_stopped, 2)

    def test_interrupt_is_a_stop_too(self):
        server = Server("-c", "4096", "-t", "1")
        events = server.stream(COMPLETIONS, {"prompt": "a", "max_tokens": 800, "ignore_eos": True, "stream": True})
        next(events)
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(list(events)[-1]["choices"][0]["finish_reason"], "length")
        server.process.wait(60)
        server.end()
        self.assertEqual(server.process.returncode, 0)

    def test_a_terminal_sees_loading_and_all_options(self):
        """The bar is for terminals only; every option of --help is in what is printed."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([isomer.BINARY, "serve", tiny_model(), "--port", "0"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        while b"serving tiny" not in shown:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        os.close(ours)
        text = shown.decode().replace("\r\n", "\n")
        options, _, rest = text.partition("\n}")
        self.assertRegex(rest.partition("serving tiny")[0], r"100%")
        with Server() as server:
            self.assertNotIn("%", "".join(server.lines))
        help_text = subprocess.run([isomer.BINARY, "serve", "--help"], capture_output=True, text=True).stdout
        names = set(re.findall(r"^  (?:-\w, |    )--([\w-]+)", help_text, re.M))
        self.assertGreater(len(names), 30)
        missing = {name for name in names if f'"{name}":' not in options} - {"help", "config"}
        self.assertEqual(missing, set())

    def test_drain_limit_cuts(self):
        for seconds in ("1", "0.5"):
            with self.subTest(seconds):
                server = Server("-c", "16384", "-t", "1", "--drain-timeout", seconds)
                events = server.stream(COMPLETIONS, {"prompt": "a", "max_tokens": 16000, "ignore_eos": True, "stream": True})
                next(events)
                server.stop()
                self.assertTrue(any("did not end in time" in line for line in server.lines), server.lines)

    def test_an_answer_on_its_way_is_all_that_a_drain_waits_for(self):
        """A client that reads its answer after SIGTERM, and keeps the connection: idle then, it is closed."""
        server = Server("--max-body", "8", "--idle-timeout", "3600", "--drain-timeout", "0", "--access-log", "none")
        body = json.dumps({"prompt": "a b " * 1500000, "return_token_strs": True}).encode()
        with server.socket(receive_buffer=4096) as connection:
            connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            answer = connection.recv(65536)  # it has begun: all of it is on its way
            server.process.send_signal(signal.SIGTERM)
            while not any("stopping" in line for line in server.lines):
                time.sleep(0.01)
            length = int(re.search(rb"Content-Length: (\d+)", answer)[1]) + answer.index(b"\r\n\r\n") + 4
            self.assertGreater(length, 32 << 20)  # more than the system's buffers hold
            received = len(answer)
            while part := connection.recv(1 << 20):
                received += len(part)
            self.assertEqual(received, length)
            server.process.wait(60)
        server.end()
        self.assertEqual(server.process.returncode, 0)


if __name__ == "__main__":
    isomer.main()
