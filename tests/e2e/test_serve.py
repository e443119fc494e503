#!/usr/bin/env python3
"""The server with a tiny model: its protocol, answers and limits.   test_serve.py PATH_TO_ISOMER"""
import json
import pathlib
import socket
import tempfile
import threading
import time
import unittest

import isomer
from serving import CHAT, COMPLETIONS, HELLO, Server, error_of


class Protocol(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", "512", "--max-sequences", "4", "-t", "1", "--max-body", "1",
                            "--receive-timeout", "2")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def raw(self, text, timeout=20, each=1 << 20):
        """What the server sends until it closes. The text is sent in pieces of `each` bytes."""
        with self.server.socket(timeout) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for start in range(0, len(text), each):
                    connection.sendall(text[start:start + each])
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before its end
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
            return b"".join(parts)

    def test_malformed_requests(self):
        for text, status in ((b"nonsense\r\n\r\n", 400), (b"GET / HTTP/9.9x\r\n\r\n", 400),
                             (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
                             (b"GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01", 400),
                             (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 40000 + b"\r\n\r\n", 431),
                             (b"GET /" + b"x" * 40000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
                             (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 400),
                             (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
                             (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                              b"Transfer-Encoding: chunked\r\n\r\n", 400),
                             (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
                             (b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405)):
            answer = self.raw(text)
            head, _, body = answer.partition(b"\r\n\r\n")
            self.assertEqual(int(head.split()[1]), status, (text[:60], answer[:200]))
            error_of(body)
            self.assertIn(b"Connection: close", head)

    def test_half_sent_request_times_out(self):
        for text in (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Le", b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"pro"):
            answer = self.raw(text, timeout=60)
            self.assertIn(b" 408 ", answer.split(b"\r\n")[0])

    def test_routes(self):
        for method, path, status in (("GET", "/nowhere", 404), ("GET", CHAT, 405), ("POST", "/health", 405),
                                     ("DELETE", CHAT, 405), ("PUT", "/", 405), ("GET", "/health?x=1", 200),
                                     ("GET", "/health/live", 200), ("GET", "/health/ready", 200),
                                     ("HEAD", "/health", 200), ("OPTIONS", CHAT, 204), ("GET", "/", 200),
                                     ("GET", "/v1/models", 200), ("GET", "/info", 200), ("GET", "/v1/models/tiny", 200),
                                     ("GET", "/v1/models/ti%6Ey", 200), ("GET", "/v1/models/", 404), ("GET", "/v1/models/%", 404),
                                     ("GET", "/v1/models/tiny/x", 404), ("POST", "/v1/models/tiny", 405),
                                     ("GET", "/openapi.json", 200), ("GET", "/metrics", 200)):
            got, headers, body = self.server.request(method, path)
            self.assertEqual(got, status, (method, path, body))
            if status == 405:
                self.assertIn("POST" if path == CHAT else "GET", headers["Allow"])
                self.assertEqual("POST" in headers["Allow"], path in (CHAT, "/"))
            if status in (404, 405):
                error_of(body)
            if method == "HEAD":
                self.assertEqual(body, b"")
                self.assertGreater(int(headers["Content-Length"]), 0)

    def test_bodies_that_are_not_json(self):
        for body, words in ((b"", "ends early"), (b"{", "in quotes"), (b"[]", "must be a JSON object"), (b"5", "must be a JSON object"),
                            (b"\xff", "a value is needed"), (b'{"prompt": NaN}', "NaN"), (b'{"prompt": 1e999}', "out of range"),
                            (b'{"prompt": "a", "prompt": "b"}', "duplicate key"), (b'{"prompt": "\\ud800"}', "lone high surrogate"),
                            (b'{"prompt": "\\udc00\\ud800"}', "lone low surrogate"), (b'{"prompt": "\\u0000"}', "NUL"),
                            (b'{"prompt": "\xc3"}', "UTF-8"), (b'{"metadata": {"a": 1, "a": 2}}', "duplicate key"),
                            (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deep"),
                            (b"[" * 500000 + b"]" * 500000, "nested too deep"), (b'{"a":' * 150000, "nested too deep"),
                            (b'{"prompt": [' + b"1," * 5000 + b"1]}", None)):
            for path in (COMPLETIONS, "/tokenize", "/generate", "/v1/embeddings", CHAT):
                got, _, answer = self.server.request("POST", path, body)
                self.assertEqual(got, 400, (path, body[:40], answer[:200]))
                self.assertIn(words or "", error_of(answer)["message"], (path, body[:40]))
        got, _, answer = self.server.request("POST", CHAT, b"\x1f\x8b", {"Content-Encoding": "gzip"})
        self.assertEqual((got, error_of(answer)["code"]), (415, "unsupported_media_type"))
        for kind, status in (("text/plain", 415), ("application/jsonp", 415), ("application/json-seq", 415),
                             ("application/json", 400), ("Application/JSON;charset=utf-8", 400), ("application/json ; a=b", 400)):
            got, _, answer = self.server.request("POST", CHAT, b"{}", {"Content-Type": kind})
            self.assertEqual((kind, got), (kind, status))
            self.assertEqual(error_of(answer)["code"] == "unsupported_media_type", status == 415)

    def test_oversize_bodies_in_bounded_memory(self):
        before = self.server.memory()
        got, _, answer = self.server.request("POST", CHAT, b" " * (2 << 20))
        self.assertEqual((got, error_of(answer)["code"]), (413, "body_too_large"))
        # A client that announces 100 MB, and one that does not, both of whom just send.
        for head in (b"Content-Length: 100000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
            with self.server.socket() as connection:
                connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + head)
                piece = b"x" * 65536
                if b"chunked" in head:
                    piece = b"10000\r\n" + piece + b"\r\n"
                try:
                    for _ in range(1526):
                        connection.sendall(piece)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                try:
                    self.assertIn(b" 413 ", connection.recv(4096))
                except ConnectionResetError:
                    pass
        self.assertLess(self.server.memory() - before, 24 << 20)

    def test_pipelined_and_reused_connections(self):
        with self.server.socket() as connection:
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
            received = b""
            while received.count(b"live\n") < 50:
                received += connection.recv(65536)
            self.assertEqual(received.count(b"HTTP/1.1 200 OK"), 50)
        connection = self.server.connect()
        for _ in range(20):
            connection.request("POST", "/tokenize", b'{"prompt": "a"}', {"Content-Type": "application/json"})
            self.assertEqual(json.loads(connection.getresponse().read())["count"], 1)
        connection.close()
        old = self.raw(b"GET /health/live HTTP/1.0\r\n\r\n")
        self.assertTrue(old.endswith(b"\r\n\r\nlive\n"), old)

    def test_expect_continue(self):
        with self.server.socket() as connection:
            connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"Expect: 100-continue\r\nContent-Length: 15\r\n\r\n")
            self.assertEqual(connection.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b'{"prompt": "a"}')
            self.assertIn(b"200 OK", connection.recv(4096))

    def test_stream_in_old_protocol(self):
        body = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True}).encode()
        answer = self.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                          b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"), answer)
        self.assertNotIn(b"chunked", answer)

    def test_shapes_that_could_be_read_two_ways(self):
        """What one reader takes as one request and another as two (request smuggling): refused, and nothing after
        it is read."""
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        body, after = b'{"prompt": "a"}', b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for lines in (b"Content-Length: 15\r\nContent-Length: 0\r\n", b"Content-Length: 15\r\nContent-Length: 15\r\n",
                      b"Content-Length: 15, 15\r\n", b"Content-Length: +15\r\n", b"Content-Length: 0xf\r\n",
                      b"Content-Length: 1 5\r\n", b"Content-Length: 15\r\nTransfer-Encoding: chunked\r\n",
                      b"Transfer-Encoding: chunked\r\nContent-Length: 15\r\n", b"Content-Length : 15\r\n",
                      b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: xchunked\r\n",
                      b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: identity\r\nContent-Length: 15\r\n",
                      b"Content-Length:\r\n 15\r\n", b"A: b\r\n Content-Length: 15\r\n", b"Host: localhost\r\n",
                      b"A: b\0c\r\nContent-Length: 15\r\n", b"\0: b\r\nContent-Length: 15\r\n",
                      b": b\r\nContent-Length: 15\r\n", b"A: b\rContent-Length: 15\r\n", b"A: b\n\tContent-Length: 15\r\n", b"A b: c\r\nContent-Length: 15\r\n"):
            for each in (1 << 20, 7):
                answer = self.raw(head + lines + b"\r\n" + body + after, each=each)
                self.assertIn(b" 400 ", answer.split(b"\r\n")[0], (lines, answer[:300]))
                self.assertEqual(answer.count(b"HTTP/1.1"), 1, (lines, answer))
        for piece in (b"f\r\n" + body + b"X\r\n0\r\n\r\n", b"-1\r\n", b"f;" + b"x" * 90000 + b"\r\n", b"fffffffffffffffff\r\n",
                      b"0x0f\r\n" + body + b"\r\n0\r\n\r\n"):
            answer = self.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + piece + after)
            self.assertRegex(answer.split(b"\r\n")[0], b" (400|413|431) ", (piece[:40], answer[:300]))
            self.assertEqual(answer.count(b"HTTP/1.1"), 1, (piece[:40], answer))

    def test_trailers_are_no_headers(self):
        """Fields after a chunked body: counted, and dropped. They are many, so that the head would move."""
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        body = b"\r\nf\r\n{\"prompt\": \"a\"}\r\n0\r\n"
        for each in (1 << 20, 100):
            answer = self.raw(head + body + b"".join(b"T%d: %s\r\n" % (n, b"x" * 900) for n in range(20)) + b"\r\n", each=each)
            self.assertIn(b" 200 ", answer.split(b"\r\n")[0], answer)
            for trailer in (b"Host: evil.example", b"Content-Encoding: gzip", b"Origin: http://evil.example",
                            b"Content-Type: text/plain", b"Authorization: Bearer x"):
                answer = self.raw(head + body + trailer + b"\r\n\r\n", each=each)
                self.assertIn(b" 200 ", answer.split(b"\r\n")[0], (trailer, answer))
            answer = self.raw(head + body + b"".join(b"T%d: %s\r\n" % (n, b"x" * 900) for n in range(60)) + b"\r\n", each=each)
            self.assertIn(b" 431 ", answer.split(b"\r\n")[0], answer)
            answer = self.raw(head + body + b"T x: y\r\n\r\n", each=each)
            self.assertIn(b" 400 ", answer.split(b"\r\n")[0], answer)

    def test_odd_but_right(self):
        body = b'{"prompt": "a"}'
        for text, status in ((b"POST http://localhost/tokenize?x HTTP/1.1\r\nHost: other\r\nContent-Type: application/json\r\n"
                              b"Content-Length: 15\r\nConnection: close\r\n\r\n" + body, 200),
                             (b"\r\n\r\nPOST /tokenize HTTP/1.1\r\nhOST: localhost:1\r\nConnection: close\r\n"
                              b"content-type: Application/JSON; charset=utf-8\r\nTRANSFER-ENCODING: Chunked\r\n\r\n"
                              b"1\r\n{\r\n0000E;a=b\r\n\"prompt\": \"a\"}\r\n0\r\nTrailer: x\r\n\r\n", 200),
                             (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 204),
                             (b"GET /health/live HTTP/1.0\r\n\r\n", 200),
                             (b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n", 200),
                             (b"GET //health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
                             (b"GET /%68ealth HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
                             (b"GET /health/../info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
                             (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400)):
            answer = self.raw(text)
            self.assertEqual(int(answer.split()[1]), status, (text, answer[:300]))
            self.assertEqual(int(self.raw(text, each=1).split()[1]), status, text)  # byte by byte

    def test_names_of_other_sites_are_refused(self):
        """A page at evil.example whose name points to this machine: Origin and Host agree."""
        port = self.server.port
        for host, status in (("localhost", 200), (f"localhost:{port}", 200), (f"127.0.0.1:{port}", 200), ("[::1]", 200),
                             (f"[::1]:{port}", 200), ("LOCALHOST.", 200), ("chat.localhost:80", 200), ("10.0.0.1", 200),
                             ("evil.example", 403), (f"evil.example:{port}", 403), ("localhost.evil.example", 403),
                             ("127.0.0.1.evil.example", 403), ("[evil.example]", 403), ("evillocalhost", 403), ("", 403),
                             ("[::1", 403), ("x" * 400, 403)):
            headers = {"Host": host, "Origin": "http://" + host}
            got, _, body = self.server.request("POST", "/tokenize", {"prompt": "a"}, headers)
            self.assertEqual(got, status, (host, body))
            if status == 403:
                self.assertIn("--allowed-host", error_of(body)["message"])
                self.assertEqual(self.server.request("GET", "/", headers=headers)[0], 403)
        self.assertIn(b" 403 ", self.raw(b"GET http://evil.example/info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
        self.assertIn(b" 400 ", self.raw(b"GET / HTTP/1.1\r\n\r\n"))
        with Server("--allowed-host", "chat.example", "--allowed-host", "other.example") as server:
            for host, status in (("Other.Example:1", 200), ("chat.example", 200), ("localhost", 200), ("third.example", 403)):
                self.assertEqual(server.request("GET", "/info", headers={"Host": host})[0], status, host)
        with Server("--host", "0.0.0.0") as server:
            self.assertEqual(server.request("GET", "/info", headers={"Host": "any.example"})[0], 200)

    def test_request_ids(self):
        _, headers, _ = self.server.request("GET", "/health", headers={"X-Request-Id": "abc-1.2_3"})
        self.assertEqual(headers["X-Request-Id"], "abc-1.2_3")
        _, headers, _ = self.server.request("GET", "/health", headers={"X-Request-Id": "a b<c>"})
        self.assertNotIn("<", headers["X-Request-Id"])


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", "2048", "--max-sequences", "8", "-t", "1")

    @classmethod
    def tearDownClass(cls):
        cls.server.wait_until_idle()
        cls.server.stop()

    def complete(self, **body):
        return self.server.post(COMPLETIONS, {"prompt": "Hello", "max_tokens": 40, "seed": 3, **body})

    def test_streamed_text_is_whole_utf8_and_equal(self):
        """The tiny model writes random bytes: characters are cut between tokens all the time."""
        for seed in range(6):
            body = {"prompt": "é 🤷🏽‍♀️", "max_tokens": 120, "seed": seed, "ignore_eos": True}
            whole = self.server.post(COMPLETIONS, body)["choices"][0]["text"]
            pieces = [event["choices"][0]["text"]
                      for event in self.server.stream(COMPLETIONS, {**body, "stream": True})]
            self.assertEqual("".join(pieces), whole)
            self.assertGreater(len(pieces), 20)

    def test_characters_of_several_tokens(self):
        """The tiny model's tokens are bytes: what it is held to write comes in pieces that are whole characters."""
        wanted = json.dumps("🤷🏽\u200d♀️ 你好 é", ensure_ascii=False)
        schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"enum": [json.loads(wanted)]}}}
        body = {"prompt": "a", "max_tokens": 100, "response_format": schema}
        self.assertEqual(self.server.post(COMPLETIONS, body)["choices"][0]["text"], wanted)
        pieces = [event["choices"][0]["text"] for event in self.server.stream(COMPLETIONS, {**body, "stream": True})]
        self.assertEqual("".join(pieces), wanted)
        self.assertGreater(len(pieces), 6)
        body = {"inputs": "a", "parameters": {"grammar": {"type": "json", "value": schema["json_schema"]["schema"]}}}
        events = list(self.server.stream("/generate_stream", body))
        self.assertEqual("".join(event["token"]["text"] for event in events[:-1]), wanted)

    def test_usage_and_finish(self):
        answer = self.complete(n=3, ignore_eos=True)
        self.assertEqual(answer["usage"]["completion_tokens"], 120)
        self.assertEqual({c["finish_reason"] for c in answer["choices"]}, {"length"})
        self.assertEqual([c["index"] for c in answer["choices"]], [0, 1, 2])
        self.assertGreater(len({c["text"] for c in answer["choices"]}), 1)
        events = list(self.server.stream(CHAT, {"messages": HELLO, "max_tokens": 5, "n": 2, "stream": True,
                                                "stream_options": {"include_usage": True}, "ignore_eos": True}))
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 10)
        self.assertEqual([e["usage"] for e in events[:-1]], [None] * (len(events) - 1))
        for index in (0, 1):
            deltas = [e["choices"][0] for e in events[:-1] if e["choices"][0]["index"] == index]
            self.assertEqual(deltas[0]["delta"].get("role"), "assistant")
            self.assertEqual([d["finish_reason"] for d in deltas], [None] * (len(deltas) - 1) + ["length"])

    def test_usage_in_each_piece(self):
        """What vLLM's clients that count as they go ask for."""
        body = {"messages": HELLO, "max_tokens": 6, "ignore_eos": True, "n": 2, "stream": True}
        both = {"include_usage": True, "continuous_usage_stats": True}
        *events, last = self.server.stream(CHAT, {**body, "stream_options": both})
        counts = [event["usage"]["completion_tokens"] for event in events]
        self.assertEqual((counts, counts[-1], events[-1]["usage"]["total_tokens"]), (sorted(counts), 12, last["usage"]["total_tokens"]))
        self.assertGreater(len(set(counts)), 6)
        self.assertEqual({event["usage"]["prompt_tokens"] for event in events}, {last["usage"]["prompt_tokens"]})
        for options in ({"continuous_usage_stats": False}, {"continuous_usage_stats": True}, {**both, "include_usage": False}):
            for event in self.server.stream(CHAT, {**body, "stream_options": options}):
                self.assertNotIn("usage", event)
        prompts = {"prompt": ["a", "bc"], "max_tokens": 3, "ignore_eos": True, "stream": True, "stream_options": both}
        *events, last = self.server.stream(COMPLETIONS, prompts)
        self.assertEqual(events[-1]["usage"]["total_tokens"], last["usage"]["total_tokens"])

    def test_same_seed_alone_and_among_others(self):
        alone = self.complete(temperature=1.5, max_tokens=60, ignore_eos=True)["choices"][0]["text"]
        texts = []
        threads = [threading.Thread(target=lambda i=i: texts.append(self.complete(
            temperature=1.5, max_tokens=60, ignore_eos=True, prompt="Hello" if i % 2 else f"Other {i}")
            ["choices"][0]["text"])) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts.count(alone), 6)

    def test_stop_strings_never_leak(self):
        for seed in range(5):
            whole = self.complete(seed=seed, ignore_eos=True, max_tokens=80)["choices"][0]["text"]
            stop = whole[30:33]
            expected = whole[:whole.index(stop)]
            cut = self.complete(seed=seed, ignore_eos=True, max_tokens=80, stop=stop)["choices"][0]
            self.assertEqual((cut["text"], cut["finish_reason"]), (expected, "stop"))
            events = list(self.server.stream(COMPLETIONS, {"prompt": "Hello", "seed": seed, "stop": ["never", stop],
                                                           "ignore_eos": True, "max_tokens": 80, "stream": True}))
            self.assertEqual("".join(e["choices"][0]["text"] for e in events), expected)
            self.assertEqual(events[-1]["choices"][0]["finish_reason"], "stop")

    def test_logprobs(self):
        chat = self.server.post(CHAT, {"messages": HELLO, "max_tokens": 6, "logprobs": True, "top_logprobs": 4,
                                       "temperature": 0, "ignore_eos": True})["choices"][0]
        content = chat["logprobs"]["content"]
        self.assertEqual(len(content), 6)
        for token in content:
            self.assertEqual(len(token["top_logprobs"]), 4)
            self.assertEqual(token["top_logprobs"][0]["logprob"], token["logprob"])
            self.assertEqual(bytes(token["bytes"]).decode("utf-8", "replace"), token["token"])
            self.assertLessEqual(token["logprob"], 0)
        echo = self.complete(echo=True, logprobs=2, max_tokens=0)["choices"][0]
        self.assertEqual(echo["text"], "Hello")
        self.assertEqual("".join(echo["logprobs"]["tokens"]), "Hello")
        self.assertIsNone(echo["logprobs"]["token_logprobs"][0])
        self.assertTrue(all(value <= 0 for value in echo["logprobs"]["token_logprobs"][1:]))

    def test_names_and_places_of_tokens(self):
        """OpenAI's: places count characters, a token that is part of one is told by its bytes, and the chosen token
        is among the likeliest, or added to them."""
        for stream in (False, True):
            body = {"prompt": "éa🤷b", "echo": True, "logprobs": 3, "max_tokens": 20, "temperature": 2, "seed": 1, "ignore_eos": True}
            answers = self.server.stream(COMPLETIONS, {**body, "stream": True}) if stream else [self.server.post(COMPLETIONS, body)]
            tokens, offsets, tops = [], [], []
            for choice in (answer["choices"][0] for answer in answers):
                if choice["logprobs"]:
                    tokens += choice["logprobs"]["tokens"]
                    offsets += choice["logprobs"]["text_offset"]
                    tops += choice["logprobs"]["top_logprobs"]
            self.assertEqual(len(tokens), 8 + 20)
            self.assertEqual(tokens[:8], ["bytes:\\xc3", "bytes:\\xa9", "a", *(f"bytes:\\x{b:02x}" for b in "🤷".encode()), "b"])
            self.assertEqual(offsets[:8], [0, 1, 1, 2, 3, 3, 3, 3])
            self.assertEqual(offsets, sorted(offsets))
            self.assertIsNone(tops[0])
            for token, top in zip(tokens[1:], tops[1:]):
                self.assertIn(token, top)
            self.assertLessEqual({4}, {len(top) for top in tops[1:]})
            self.assertLessEqual({len(top) for top in tops[1:]}, {3, 4})

    def test_every_choice_begins_with_the_prompts_tokens(self):
        body = {"prompt": ["éa", "b"], "n": 3, "echo": True, "logprobs": 1, "max_tokens": 4, "seed": 2, "ignore_eos": True}
        whole = [{name: list(values) for name, values in c["logprobs"].items()} for c in self.server.post(COMPLETIONS, body)["choices"]]
        pieces = [{name: [] for name in choice} for choice in whole]
        for event in self.server.stream(COMPLETIONS, {**body, "stream": True}):
            for name, values in (event["choices"][0]["logprobs"] or {}).items():
                pieces[event["choices"][0]["index"]][name] += values
        self.assertEqual(pieces, whole)
        self.assertEqual([len(choice["tokens"]) for choice in whole], [7] * 3 + [5] * 3)

    def test_special_tokens_are_added_where_they_are_asked_for(self):
        """To a conversation too, where the model wants a first token and its template writes none."""
        with tempfile.TemporaryDirectory(prefix="isomer-test-") as folder:
            isomer.run("synth", "tiny-llama", folder + "/tiny/", "--scheme", "f32")
            path = pathlib.Path(folder, "tiny/tokenizer_config.json")
            path.write_text(json.dumps({**json.loads(path.read_text()), "add_bos_token": True}))
            with Server("-t", "1", model=folder + "/tiny/") as server:
                for path, body in ((CHAT, {"messages": HELLO, "max_tokens": 1}), (COMPLETIONS, {"prompt": "Hello", "max_tokens": 1})):
                    counts = [server.post(path, {**body, **more})["usage"]["prompt_tokens"]
                              for more in ({}, {"add_special_tokens": True}, {"add_special_tokens": False})]
                    self.assertEqual(counts, [counts[0], counts[0], counts[0] - 1], path)

    def test_logit_bias_penalties_and_beams(self):
        banned = self.complete(temperature=0, max_tokens=1, logprobs=0)["choices"][0]["logprobs"]["tokens"][0]
        ids = {self.server.post("/detokenize", {"tokens": [i]})["prompt"]: i for i in range(256)}
        if banned in ids:
            other = self.complete(temperature=0, max_tokens=1, logprobs=0, logit_bias={str(ids[banned]): -100})
            self.assertNotEqual(other["choices"][0]["logprobs"]["tokens"][0], banned)
        forced = self.complete(max_tokens=8, logit_bias={"100": 100}, temperature=0, ignore_eos=True)["choices"][0]["text"]
        self.assertEqual(len(set(forced)), 1)
        mixed = self.complete(max_tokens=8, logit_bias={"100": 5}, temperature=0, ignore_eos=True,
                              frequency_penalty=2, presence_penalty=2, repetition_penalty=2)["choices"][0]["text"]
        self.assertGreater(len(set(mixed)), 1)
        beams = self.complete(use_beam_search=True, beam_width=4, n=2, max_tokens=6)
        self.assertEqual(len(beams["choices"]), 2)
        greedy = self.complete(use_beam_search=True, n=1, beam_width=1, max_tokens=6, ignore_eos=True)
        self.assertEqual(greedy["choices"][0]["text"],
                         self.complete(temperature=0, max_tokens=6, ignore_eos=True)["choices"][0]["text"])

    def test_prefix_cache_is_reported_and_kept_apart(self):
        prompt = "q" * 500
        first = self.complete(prompt=prompt, max_tokens=1)["usage"]
        second = self.complete(prompt=prompt, max_tokens=1)["usage"]
        salted = self.complete(prompt=prompt, max_tokens=1, cache_salt="tenant")["usage"]
        apart = self.complete(prompt=prompt, max_tokens=1, cache_prompt=False)["usage"]
        self.assertEqual(apart["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(first["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertGreaterEqual(second["prompt_tokens_details"]["cached_tokens"], 400)
        self.assertEqual(salted["prompt_tokens_details"]["cached_tokens"], 0)

    def test_context_limit_ends_with_length(self):
        choice = self.complete(prompt="a" * 2000, max_tokens=500, ignore_eos=True)["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        for path, param, body in ((COMPLETIONS, "prompt", {"prompt": "a" * 5000}), ("/v1/embeddings", "input", {"input": "a" * 5000}),
                                  (CHAT, "messages", {"messages": [{"role": "user", "content": "a" * 5000}]})):
            error = self.server.post(path, body, 400)["error"]
            self.assertEqual((error["code"], error["param"]), ("context_length_exceeded", param))

    def test_bodies_of_many_values(self):
        """A tree takes tens of times its text: many small values are refused before one is made, wherever they are."""
        before = self.server.memory("VmHWM")
        ids = {"prompt": [97] * 500000}  # about as many as are read
        self.assertEqual(self.server.post(COMPLETIONS, ids, 400)["error"]["code"], "context_length_exceeded")
        one = self.server.memory("VmHWM") - before  # a tree and its text, in whichever build
        many = "[" + "1," * 3000000 + "1]"
        calls = ",".join('{"id": "%d", "type": "function", "function": {"name": "f", "arguments": %s}}'
                         % (n, json.dumps('{"a": [' + "1," * 100000 + "1]}")) for n in range(8))
        for path, body in ((COMPLETIONS, '{"prompt": %s}' % many), ("/v1/embeddings", '{"input": %s}' % many),
                           ("/tokenize", '{"prompt": %s}' % many), ("/detokenize", '{"tokens": %s}' % many),
                           ("/generate", '{"inputs": %s}' % many), (CHAT, '{"messages": %s}' % many),
                           (CHAT, '{"messages": [{"role": "assistant", "content": "", "tool_calls": [%s]}]}' % calls)):
            status, _, text = self.server.request("POST", path, body.encode())
            self.assertEqual((status, error_of(text)["code"]), (413, "body_too_large"), path)
        self.assertLess(self.server.memory("VmHWM") - before, 3 * one)

    def test_fewer_beams_than_asked_for(self):
        """Where nothing but the end may come there is one answer, streamed or not."""
        end = next(i for i in range(256, 320) if self.server.post("/detokenize", {"tokens": [i]})["prompt"] == "<|im_end|>")
        body = {"prompt": "a", "use_beam_search": True, "beam_width": 3, "n": 3, "max_tokens": 5,
                "logit_bias": {str(i): -100 for i in range(320) if i != end}}
        whole = self.server.post(COMPLETIONS, body)["choices"]
        self.assertEqual([(c["index"], c["text"], c["finish_reason"]) for c in whole], [(0, "", "stop")])
        events = list(self.server.stream(COMPLETIONS, {**body, "stream": True}))
        self.assertEqual([e["choices"][0]["index"] for e in events if e["choices"][0]["finish_reason"]], [0])
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        self.assertEqual(len(self.server.post(CHAT, body)["choices"]), 1)

    def test_many_prompts(self):
        """As many as OpenAI takes, whatever the queue holds; and who asks meanwhile does not come behind them all."""
        with Server("-c", "256", "-t", "1", "--max-sequences", "2", "--max-queue", "50", "--no-prefix-cache") as server:
            texts = [f"text {n % 7}" for n in range(2048)]
            rows = server.post("/v1/embeddings", {"input": texts})["data"]
            self.assertEqual([row["index"] for row in rows], list(range(2048)))
            for n in (0, 6, 2047):
                self.assertEqual(rows[n]["embedding"], server.post("/v1/embeddings", {"input": texts[n]})["data"][0]["embedding"])
            refused = server.metrics()["isomer_engine_requests_total"]
            error = server.post(COMPLETIONS, {"prompt": ["a"] * 100 + ["a" * 300], "max_tokens": 1}, 400)["error"]
            self.assertEqual((error["code"], error["param"]), ("context_length_exceeded", "prompt"))
            self.assertEqual(server.metrics()["isomer_engine_requests_total"], refused)  # before any was begun
            answers = []
            many = {"prompt": texts[:60], "max_tokens": 50, "ignore_eos": True, "stream": True}
            thread = threading.Thread(target=lambda: answers.extend(server.stream(COMPLETIONS, many)))
            thread.start()
            server.wait_for(lambda m: m["isomer_engine_running"] > 0)
            server.post(COMPLETIONS, {"prompt": "b", "max_tokens": 1})
            self.assertTrue(thread.is_alive())
            self.assertLessEqual(server.metrics()["isomer_engine_waiting"], 4)
            thread.join()
            ends = [e["choices"][0]["index"] for e in answers if e["choices"][0]["finish_reason"]]
            self.assertEqual(sorted(ends), list(range(60)))
        with Server("-c", "256", "-t", "1", "--max-sequences", "1", "--max-queue", "2") as server:
            over, answers = threading.Event(), []
            small = {"prompt": "b", "max_tokens": 20, "ignore_eos": True}
            many = {**small, "prompt": ["a"] * 8, "stream": True}

            def fill():  # the queue, again and again
                while not over.is_set():
                    server.request("POST", COMPLETIONS, small)
            others = [threading.Thread(target=fill) for _ in range(8)]
            for answer in server.stream(COMPLETIONS, many):  # what has begun goes on, however full the queue
                if not answers:
                    for other in others:
                        other.start()
                answers.append(answer)
            over.set()
            for other in others:
                other.join()
            self.assertEqual(sorted(e["choices"][0]["index"] for e in answers if e["choices"][0]["finish_reason"]), list(range(8)))
        with Server("-c", "256", "-t", "1", "--max-sequences", "2", "--max-queue", "2") as server:
            ends = (e for e in server.stream(COMPLETIONS, {**many, "prompt": ["a"] * 40}) if e["choices"][0]["finish_reason"])
            for _ in range(6):
                next(ends)
            for _ in range(3):  # one request with many leaves room in a short queue
                server.post(COMPLETIONS, {**small, "max_tokens": 1})
            self.assertEqual(sum(1 for _ in ends), 34)
        with Server("-c", "16384", "-t", "1", "--max-sequences", "1", "--request-timeout", "1") as server:
            start = time.monotonic()
            error = server.post(COMPLETIONS, {"prompt": ["a"] * 2000, "max_tokens": 500, "ignore_eos": True}, 504)["error"]
            self.assertEqual(error["code"], "timeout")
            self.assertLess(time.monotonic() - start, 20)  # it is of all together

    def test_embeddings(self):
        answer = self.server.post("/v1/embeddings", {"input": ["abc", "abc", "xyz"]})
        vectors = [row["embedding"] for row in answer["data"]]
        self.assertAlmostEqual(sum(x * x for x in vectors[0]), 1, 4)
        self.assertEqual(vectors[0], vectors[1])
        self.assertNotEqual(vectors[0], vectors[2])
        import base64
        import struct
        packed = self.server.post("/v1/embeddings", {"input": "abc", "encoding_format": "base64"})["data"][0]["embedding"]
        unpacked = struct.unpack(f"<{len(vectors[0])}f", base64.b64decode(packed))
        for a, b in zip(unpacked, vectors[0]):
            self.assertAlmostEqual(a, b, 5)

    def test_generate_dialects(self):
        body = {"inputs": "Hello", "parameters": {"max_new_tokens": 7, "details": True, "seed": 1}}
        whole = self.server.post("/generate", body)
        details = whole["details"]
        self.assertEqual(details["generated_tokens"], len(details["tokens"]))
        events = list(self.server.stream("/generate_stream", body))
        self.assertEqual("".join(e["token"]["text"] for e in events[:-1]), whole["generated_text"])
        self.assertEqual(events[-1]["generated_text"], whole["generated_text"])
        self.assertEqual(events[-1]["details"]["finish_reason"], details["finish_reason"])
        asked = {"inputs": "Hello", "parameters": {"max_new_tokens": 1, "decoder_input_details": True}}
        prefill = self.server.post("/generate", asked)["details"]["prefill"]
        self.assertEqual("".join(token["text"] for token in prefill if not token["special"]), "Hello")
        self.assertIsNone(prefill[0]["logprob"])  # as TGI has it: no token is before it
        self.assertLess(max(token["logprob"] for token in prefill[1:]), 0)
        for seed in (None, -3, 2 ** 62 + 1):  # the one that is told brings the same answer
            parameters = {"max_new_tokens": 12, "details": True, "do_sample": True, "seed": seed}
            first = self.server.post("/generate", {"inputs": "Hello", "parameters": parameters})
            parameters["seed"] = first["details"]["seed"]
            self.assertEqual(self.server.post("/generate", {"inputs": "Hello", "parameters": parameters}), first)
        n_cut = 0
        for seed in range(150):  # whoever joins what is not special has all, a cut character at the end too
            body = {"inputs": "Hello", "parameters": {"max_new_tokens": 9, "seed": seed, "do_sample": True}}
            events = list(self.server.stream("/generate_stream", body))
            joined = "".join(e["token"]["text"] for e in events if not e["token"]["special"])
            self.assertEqual(joined, events[-1]["generated_text"])
            n_cut += events[-1]["token"]["text"] != ""
        self.assertGreater(n_cut, 0)
        body["parameters"]["stop"] = list("abcdefghijklmnop")
        for _ in range(1000):  # an answer without a token still ends with one that says so
            body["parameters"]["seed"] += 1
            events = list(self.server.stream("/generate_stream", body))
            if len(events) == 1:
                break
        self.assertEqual((events[0]["generated_text"], events[0]["token"]["text"], events[0]["token"]["special"]), ("", "", True))
        body = {"inputs": "Hello", "parameters": {"max_new_tokens": 7, "seed": 1}}
        short = {**body, "parameters": {**body["parameters"], "return_full_text": False}}
        answer = self.server.post("/generate", body)["generated_text"]
        self.assertEqual(self.server.post("/", short), [{"generated_text": answer}])  # TGI's root: a list
        self.assertEqual(self.server.post("/", body), [{"generated_text": "Hello" + answer}])
        events = list(self.server.stream("/", {**short, "stream": True}))
        self.assertEqual("".join(e["token"]["text"] for e in events[:-1]), events[-1]["generated_text"])
        self.assertEqual(events[-1]["generated_text"], answer)
        self.assertEqual(self.server.post("/", {"prompt": "Hello"}, 400)["error"]["param"], "prompt")
        paths = json.loads(self.server.get("/openapi.json"))["paths"]
        self.assertEqual(set(paths["/"]), {"get", "post"})
        full = self.server.post("/generate", {"inputs": "Hello", "parameters": {"return_full_text": True}})
        self.assertTrue(full["generated_text"].startswith("Hello"))
        body = {"prompt": "Say \"inputs\": 1", "max_tokens": 5, "seed": 1, "n": 2}
        texts = self.server.post("/generate", body)["text"]
        self.assertEqual(len(texts), 2)
        self.assertTrue(texts[0].startswith(body["prompt"]))
        self.assertEqual(list(self.server.stream("/generate_stream", body))[-1]["text"], texts)


if __name__ == "__main__":
    isomer.main()
