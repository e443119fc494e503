#!/usr/bin/env python3
"""Clients that misbehave, beside clients that do not.   test_serve_abuse.py PATH_TO_ISOMER

ISOMER_TEST_CONNECTIONS (10,000) is how many connections are opened and dropped, ISOMER_TEST_CANCEL_SECONDS (6;
300 for the long form) how long clients come and leave at random."""
import http.client
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import isomer
from serving import COMPLETIONS, Server

N_CONNECTIONS = int(os.environ.get("ISOMER_TEST_CONNECTIONS", "10000"))
CANCEL_SECONDS = float(os.environ.get("ISOMER_TEST_CANCEL_SECONDS", "6"))
LONG = {"prompt": "a", "max_tokens": 16000, "ignore_eos": True, "seed": 1}
# How long the server may take to answer a health request while others misbehave: less than it waits
# for those others, however busy the machine is.
PATIENCE = 20.0


def post_bytes(body, padding=0):
    text = json.dumps(body).encode() + b" " * padding
    return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(text), text))


class Abuse(unittest.TestCase):
    def setUp(self):
        self.server = Server("-c", "16384", "--max-sequences", "4", "-t", "1", "--kv-memory", "160",
                             "--access-log", "none")

    def tearDown(self):
        self.server.wait_until_idle()
        self.server.stop()

    def check_alive(self):
        start = time.monotonic()
        self.assertEqual(self.server.get("/health/live"), "live\n")
        self.assertLess(time.monotonic() - start, PATIENCE)

    def check_serves(self):
        answer = self.server.post(COMPLETIONS, {"prompt": "b", "max_tokens": 4, "ignore_eos": True})
        self.assertEqual(answer["usage"]["completion_tokens"], 4)

    def open_and_drop_connections(self):
        for number in range(N_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", self.server.port))
            kind = number % 4
            if kind == 1:
                connection.sendall(b"GET /hea")
            elif kind == 2:  # a reset instead of an end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif kind == 3:
                connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.close()
        self.check_alive()
        self.server.wait_for(lambda m: m["isomer_http_connections"] == 1, what="dropped connections")

    def test_connections_opened_and_dropped(self):
        """How much memory a round takes depends on how many connections meet, and an allocator keeps
        it for the next rounds. What leaks fills that, and then grows in every round."""
        peak, rounds_within_peak, sizes = 0, 0, []
        while rounds_within_peak < 4 and len(sizes) < 40:
            self.open_and_drop_connections()
            sizes.append(self.server.memory())
            if sizes[-1] <= peak + N_CONNECTIONS * 20:
                rounds_within_peak += 1
            else:
                peak, rounds_within_peak = sizes[-1], 0
        print(f"MB after each {N_CONNECTIONS} connections: {[round(s / 1e6, 1) for s in sizes]}")
        self.assertEqual(rounds_within_peak, 4)
        self.check_serves()

    def test_idle_connections_are_cheap(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4200)), hard))
        before = self.server.memory()
        connections = [self.server.socket() for _ in range(min(N_CONNECTIONS, 4000))]
        for connection in connections:
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for connection in connections:
            self.assertIn(b"live", connection.recv(1000))
        each = (self.server.memory() - before) / len(connections)
        clock = os.sysconf("SC_CLK_TCK")

        def cpu():
            with open(f"/proc/{self.server.process.pid}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / clock
        start = cpu()
        time.sleep(1)
        used = cpu() - start
        print(f"{len(connections)} idle connections: {each:.0f} bytes each, {used:.3f} s CPU in 1 s")
        self.assertLess(each * 4000, 100e6)
        self.assertLess(used, 0.1)
        for connection in connections:
            connection.close()

    def test_half_sent_requests_hold_up_nobody(self):
        whole = post_bytes(LONG)
        stuck = []
        for number in range(200):
            connection = self.server.socket()
            connection.sendall(whole[:1 + number % (len(whole) - 1)])
            stuck.append(connection)
        for _ in range(3):
            self.check_alive()
            self.check_serves()
        for connection in stuck:
            connection.close()
        self.server.wait_for(lambda m: m["isomer_http_connections"] == 1)

    def test_clients_that_leave(self):
        """In every state: queued, in prefill, streaming, waiting for a whole answer; politely or not."""
        states = [dict(LONG, stream=True), dict(LONG), dict(LONG, prompt="a" * 12000),
                  dict(LONG, n=3, stream=True), dict(LONG, prompt=["a", "b", "c"]), dict(LONG, prompt=["a"] * 60, stream=True)]
        rng = random.Random(5)
        for round_ in range(3):
            connections = []
            for number in range(24):
                connection = self.server.socket()
                if number % 2:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(post_bytes(rng.choice(states)))
                connections.append(connection)
            self.server.wait_for(lambda m: m["isomer_engine_waiting"] > 0 and m["isomer_engine_running"] > 0)
            rng.shuffle(connections)
            for connection in connections:
                connection.close()
                time.sleep(rng.random() * 0.02)
            self.server.wait_until_idle()
            self.check_serves()

    def test_half_closed_connections_are_answered(self):
        """A client that ends its half after the request still gets the answer, queued, running or streamed."""
        bodies = [dict(LONG, max_tokens=600), dict(LONG, max_tokens=600, stream=True)] * 4  # more than run at once
        connections = []
        for body in bodies:
            connection = self.server.socket()
            connection.sendall(post_bytes(body))
            connection.shutdown(socket.SHUT_WR)
            connections.append(connection)
        expected = self.server.post(COMPLETIONS, bodies[0])["choices"][0]["text"]
        for body, connection in zip(bodies, connections):
            answer = http.client.HTTPResponse(connection)  # which skips "100 Continue"
            answer.begin()
            text = answer.read().decode()
            self.assertEqual(answer.status, 200, text)
            if "stream" in body:
                rows = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
                text = "".join(row["choices"][0]["text"] for row in rows)
            else:
                text = json.loads(text)["choices"][0]["text"]
            self.assertEqual(text, expected)
            self.assertEqual(connection.recv(1), b"")
            connection.close()
        # Two requests at once, and in the old protocol.
        with self.server.socket() as connection:
            connection.sendall(2 * post_bytes(dict(LONG, max_tokens=20)))
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(b"".join(iter(lambda: connection.recv(65536), b"")).count(b"HTTP/1.1 200 OK"), 2)
        with self.server.socket() as connection:
            connection.sendall(post_bytes(dict(LONG, max_tokens=400)).replace(b"HTTP/1.1", b"HTTP/1.0"))
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
            self.assertIn(b" 200 OK", answer)
            self.assertNotIn(b"100 Continue", answer)
        # While a worker reads the body, which takes it longer than the first "100 Continue".
        prompts = ["a longer prompt, " * 120 for _ in range(128)]
        for close in (False, True) * 4:
            with self.server.socket() as connection:
                connection.sendall(post_bytes({"prompt": prompts, "max_tokens": 1}))
                if close:
                    time.sleep(0.02)
                    continue
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
                self.assertTrue(b"HTTP/1.1 200 OK" in answer, answer[:200])

    def start_client(self, what, read=""):
        """A process that connects, sends and then reads as told; it has sent when this returns."""
        script = ("import socket,time\ns=socket.create_connection(('127.0.0.1',%d))\ns.sendall(%r)\n"
                  "print('sent',flush=True)\n%s\ntime.sleep(600)\n" % (self.server.port, what, read))
        client = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        self.assertEqual(client.stdout.readline(), b"sent\n")
        return client

    def test_clients_killed_in_every_state(self):
        whole = post_bytes(dict(LONG, max_tokens=16000))
        streamed, everything = post_bytes(dict(LONG, stream=True)), "while s.recv(65536): pass"
        running = ("isomer_engine_running", 1)
        for name, what, read, (metric, least) in (
                ("connected", b"", "", ("isomer_http_connections", 2)),
                ("in the head", whole[:40], "", ("isomer_http_connections", 2)),
                ("in the body", whole[:-10], "", ("isomer_http_connections", 2)),
                ("between requests", b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", "s.recv(999)",
                 ("isomer_http_connections", 2)),
                ("reading a prompt", post_bytes(dict(LONG, prompt="a" * 12000)), "", running),
                ("waiting for a whole answer", whole, everything, running),
                ("reading a stream", streamed, everything, running),
                ("not reading a stream", post_bytes(dict(LONG, stream=True, n=3, logprobs=20)), "", ("isomer_engine_paused", 1)),
                ("with more requests sent", streamed + 3 * whole, everything, running),
                ("ended its half", whole, "s.shutdown(1)", running)):
            with self.subTest(name):
                client = self.start_client(what, read)
                self.server.wait_for(lambda m: m[metric] >= least, 90, name)
                client.kill()
                client.wait()
                client.stdout.close()
                self.server.wait_until_idle(15)
                self.server.wait_for(lambda m: m["isomer_http_connections"] == 1, 15, name)
        # Queued: behind as many as run at once.
        clients = [self.start_client(whole) for _ in range(6)]
        self.server.wait_for(lambda m: m["isomer_engine_running"] == 4 and m["isomer_engine_waiting"] == 2)
        for client in reversed(clients):
            client.kill()
            client.wait()
            client.stdout.close()
        self.server.wait_until_idle(15)
        self.check_serves()

    def test_half_of_the_clients_leave_at_random(self):
        """Eight clients at a time, of whom half go away at some moment; the others' answers are right, and in
        the end no page is in use."""
        bodies = [{"prompt": f"p{n} " * (1 + n * 9), "max_tokens": 30 + 40 * n, "ignore_eos": True, "seed": n, "n": 1 + n % 2}
                  for n in range(6)]
        schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 40}, "b": {"enum": [1, 2]}}, "required": ["a", "b"]}
        bodies += [{"prompt": f"q{n}", "max_tokens": 100, "seed": n, "n": n, "response_format": {
            "type": "json_schema", "json_schema": {"name": "s", "schema": schema}}} for n in (1, 2)]
        expected = [[c["text"] for c in self.server.post(COMPLETIONS, body)["choices"]] for body in bodies]
        end = time.monotonic() + CANCEL_SECONDS
        counts, faults = {"left": 0, "answered": 0}, []

        def client(number):
            rng = random.Random(number)
            while (time.monotonic() < end or min(counts.values()) <= 5) and not faults:
                which, stream = rng.randrange(len(bodies)), rng.random() < 0.5
                try:
                    if rng.random() < 0.5:
                        connection = self.server.socket()
                        if rng.random() < 0.5:
                            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        connection.sendall(post_bytes(dict(bodies[which], stream=stream, max_tokens=4000)))
                        time.sleep(rng.random() ** 3 * 0.5)
                        connection.close()
                        counts["left"] += 1
                        continue
                    if stream:
                        texts = [""] * bodies[which]["n"]
                        for event in self.server.stream(COMPLETIONS, dict(bodies[which], stream=True)):
                            texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
                    else:
                        texts = [c["text"] for c in self.server.post(COMPLETIONS, bodies[which])["choices"]]
                    counts["answered"] += 1
                    if texts != expected[which]:
                        faults.append((which, texts))
                except (AssertionError, OSError, ValueError) as fault:
                    faults.append(fault)
        threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"{counts['left']} clients left, {counts['answered']} were answered")
        self.assertEqual(faults, [])
        self.assertGreater(min(counts.values()), 5)
        self.server.wait_until_idle()

    def test_a_queued_request_that_leaves_touches_no_other(self):
        body = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "seed": 9}
        expected = self.server.post(COMPLETIONS, body)["choices"][0]["text"]
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(
            self.server.post(COMPLETIONS, body)["choices"][0]["text"])) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.server.wait_for(lambda m: m["isomer_engine_running"] == 4)
        for _ in range(10):
            connection = self.server.socket()
            connection.sendall(post_bytes(LONG))
            self.server.wait_for(lambda m: m["isomer_engine_waiting"] > 0)
            connection.close()
            self.server.wait_for(lambda m: m["isomer_engine_waiting"] == 0)
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [expected] * 4)

    def test_slow_readers_stop_only_themselves(self):
        before = self.server.memory()
        slow = []
        for number in range(3):
            connection = self.server.socket(receive_buffer=2048)
            connection.sendall(post_bytes(dict(LONG, n=3, stream=True, seed=number, logprobs=20, max_tokens=3000)))
            slow.append(connection)
        stop = threading.Event()

        def sip():
            while not stop.wait(1):
                for connection in slow:
                    connection.recv(1)
        sipper = threading.Thread(target=sip, daemon=True)
        self.addCleanup(stop.set)
        sipper.start()
        self.server.wait_for(lambda m: m["isomer_engine_paused"] >= 3, 90, "three paused requests")
        for _ in range(3):
            self.check_alive()
            self.check_serves()
        self.assertLess(self.server.memory() - before, 64 << 20)
        # Once what lies between is full they do not run: all that is made meanwhile is made for others.
        for _ in range(100):
            made = self.server.metrics()["isomer_engine_output_tokens_total"]
            self.server.post(COMPLETIONS, {"prompt": "c", "max_tokens": 400, "ignore_eos": True, "seed": 2})
            made = self.server.metrics()["isomer_engine_output_tokens_total"] - made
            if made < 400 + 50:
                break
        self.assertLess(made, 400 + 50)
        self.assertGreaterEqual(self.server.metrics()["isomer_engine_paused"], 3)
        stop.set()
        sipper.join()
        # Those who read again get all of it.
        reader = slow[0]
        tail = b""
        while part := reader.recv(1 << 20):
            tail = (tail + part)[-4096:]
            if tail.endswith(b"0\r\n\r\n"):
                break
        self.assertIn(b"data: [DONE]", tail)
        for connection in slow:
            connection.close()

    def test_health_while_a_long_prompt_is_read(self):
        slowest = 0.0
        thread = threading.Thread(target=lambda: self.server.post(
            COMPLETIONS, {"prompt": "a" * 7000, "max_tokens": 1}, timeout=120))
        thread.start()
        n = 0
        while thread.is_alive():
            start = time.monotonic()
            self.server.get("/health")
            self.server.get("/metrics")
            slowest = max(slowest, time.monotonic() - start)
            n += 1
        thread.join()
        print(f"{n} health and metrics requests during the prompt, the slowest {slowest * 1e3:.1f} ms")
        self.assertGreater(n, 3)
        self.assertLess(slowest, PATIENCE)

    def test_large_and_tiny_bodies_together(self):
        """Bodies that go to a worker, and that are refused there, beside small ones."""
        big = {"prompt": [70] * 300000, "max_tokens": 1}
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(
            self.server.request("POST", COMPLETIONS, big)[0])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            self.check_alive()
        for thread in threads:
            thread.join()
        self.assertEqual(statuses, [400] * 8)
        gone = self.server.socket()
        gone.sendall(post_bytes(big))
        gone.close()


class Bodies(unittest.TestCase):
    """Bodies of 1 MiB at most, and of 16 MiB together."""

    def setUp(self):
        self.server = Server("-c", "16384", "--max-sequences", "2", "--kv-memory", "80", "--max-body", "1", "-t", "1",
                             "--access-log", "none")

    def tearDown(self):
        self.server.stop()

    def test_bodies_that_never_end_keep_out_only_large_ones(self):
        head = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1048576\r\n\r\n")
        held = []

        def hold(length):
            held.append(self.server.socket())
            held[-1].sendall(head + b" " * length)
        for length in [1048575] * 16 + [100]:
            hold(length)
        small, large = b'{"prompt": "a"}', b'{"prompt": "a"}' + b" " * 200000

        def ask(body):
            try:
                return self.server.request("POST", "/tokenize", body)[0]
            except (BrokenPipeError, ConnectionResetError):
                return 503  # refused before its end
        end = time.monotonic() + 20
        while ask(large) != 503:
            self.assertLess(time.monotonic(), end, "the bodies were not read")
            hold(1048575)  # in place of one that was refused, as the large one was read before all were
        for _ in range(5):
            self.assertEqual(ask(small), 200)
        for connection in held:
            connection.close()
        while ask(large) != 200:
            self.assertLess(time.monotonic(), end, "the bodies were not let go")

    def test_bodies_count_until_they_are_read(self):
        """Many large requests wait for the engine, which has copies of what they ask."""
        waiting = []
        for number in range(1, 25):
            waiting.append(self.server.socket())
            waiting[-1].sendall(post_bytes(dict(LONG, stream=True), 900000))
            self.server.wait_for(lambda m: m["isomer_engine_running"] + m["isomer_engine_waiting"] +
                                 m["isomer_engine_requests_total"] == number)
        self.assertEqual(self.server.request("POST", "/tokenize", b'{"prompt": "a"}' + b" " * 900000)[0], 200)
        for connection in waiting:
            connection.close()
        self.server.wait_until_idle()


class SmallPool(unittest.TestCase):
    """A cache of 8 pages."""

    def test_many_requests_and_one_too_large(self):
        with Server("-c", "512", "--max-sequences", "32", "--page-size", "64", "--kv-memory", "1", "-t", "1") as server:
            pages = server.metrics()["isomer_engine_pages"]
            self.assertLessEqual(pages, 8)
            room = int(pages) * 64
            statuses = []

            def ask(number):
                prompt = chr(97 + number % 26) * (room + 64 if number % 8 == 0 else 60 + number)
                body = {"prompt": prompt, "max_tokens": 100, "ignore_eos": True}
                statuses.append((number % 8 == 0, server.request("POST", COMPLETIONS, body, timeout=120)[0]))
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(statuses), [(False, 200)] * 28 + [(True, 400)] * 4)
            server.wait_until_idle()


if __name__ == "__main__":
    isomer.main()
