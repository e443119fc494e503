#!/usr/bin/env python3
"""Replicas behind HAProxy, with TLS: deploy/replicas as it is.   test_serve_proxy.py PATH_TO_ISOMER"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import isomer
from serving import tiny_model

for program in ("haproxy", "openssl"):
    if not shutil.which(program):
        print(f"SKIPPED: no {program}; scripts/install-packages installs it")
        sys.exit(isomer.SKIPPED)


def free_ports(count):
    """The first of `count` free ports in a row, below those that clients are given: ten thousand
    connections of another test leave no three of these beside each other."""
    for first in range(20000 + os.getpid() % 10000, 32700, 7):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise AssertionError("no free ports")


class Proxy(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        certificate = self.folder.name + "/isomer.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", certificate, "-out", certificate + ".crt"], check=True, capture_output=True)
        with open(certificate, "a") as both, open(certificate + ".crt") as public:
            both.write(public.read())
        self.trust = ssl.create_default_context(cafile=certificate + ".crt")
        self.port = free_ports(3)
        self.errors = open(self.folder.name + "/errors", "w+")
        self.process = subprocess.Popen(
            [os.path.join(isomer.SOURCE, "deploy/replicas"), "2", str(self.port), tiny_model(), "-c", "4096", "-t", "1",
             "--max-sequences", "4", "--kv-memory", "40", "--access-log", "none"],
            env=dict(os.environ, ISOMER=isomer.BINARY, ISOMER_BIND=f"127.0.0.1:{self.port} ssl crt {certificate}"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        for port in (self.port + 1, self.port + 2):
            self.wait_ready(port)
        end = time.monotonic() + 30
        while self.request("GET", "/health/ready")[0] != 200:
            self.assertLess(time.monotonic(), end, "the proxy finds no replica")
            time.sleep(0.1)

    def tearDown(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.errors.close()
        self.folder.cleanup()
        for port in (self.port, self.port + 1, self.port + 2):
            with self.assertRaises(OSError):
                socket.create_connection(("127.0.0.1", port), 1)

    def wait_ready(self, port, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", "/health/ready")
                status = connection.getresponse().status
                connection.close()
                if status == 200:
                    return
            except OSError:
                pass
            self.assertLess(time.monotonic(), end, f"no replica on port {port}")
            time.sleep(0.05)

    def open(self, method, path, body=None):
        end = time.monotonic() + 30
        while True:
            connection = http.client.HTTPSConnection("localhost", self.port, timeout=120, context=self.trust)
            try:
                connection.connect()
                break
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), end, "the proxy does not start")
                time.sleep(0.1)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        return connection

    def request(self, method, path, body=None):
        connection = self.open(method, path, body)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, text

    def replica_pid(self, port):
        self.errors.flush()
        folder = re.search(r"files in (\S+)", pathlib.Path(self.errors.name).read_text())[1]
        return int(pathlib.Path(f"{folder}/{port}.pid").read_text())

    def test_one_of_two_replicas_is_killed(self):
        """Nothing that had not begun to stream is lost, and a whole answer is never half of one."""
        def body(number, **more):
            return {"prompt": f"request {number}", "max_tokens": 300, "seed": number, "ignore_eos": True, **more}
        expected = json.loads(self.request("POST", "/v1/completions", body(0))[1])["choices"][0]["text"]
        whole, begun_cut, done = [], [], []

        def ask(number):
            stream = number % 3 == 2
            connection = self.open("POST", "/v1/completions", body(number, stream=stream))
            response = connection.getresponse()
            first = response.read(1) if stream else b""
            try:
                text = first + response.read()
            except (http.client.IncompleteRead, OSError):
                text = first
            connection.close()
            if not stream:
                whole.append((number, response.status, text))
            elif first and not text.endswith(b"data: [DONE]\n\n"):
                begun_cut.append(number)
            else:
                whole.append((number, response.status, text))
            done.append(number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(36)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60
        while len(done) < 4 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertLess(len(done), 36, "all were answered before the replica was killed")
        victim = self.replica_pid(self.port + 1)
        os.kill(victim, signal.SIGKILL)
        for thread in threads:
            thread.join()
        self.assertEqual(len(whole) + len(begun_cut), 36)
        for number, status, text in whole:
            self.assertEqual(status, 200, (number, text))
        answers = {number: text for number, _, text in whole}
        self.assertEqual(json.loads(answers[0])["choices"][0]["text"], expected)
        self.assertTrue(all(number % 3 == 2 for number in begun_cut))
        print(f"{len(whole)} whole answers, {len(begun_cut)} streams cut after they had begun")
        self.wait_ready(self.port + 1)  # it is started again
        self.assertNotEqual(self.replica_pid(self.port + 1), victim)

    def test_a_client_that_leaves_frees_the_replica(self):
        for stream in (True, False):
            connection = self.open("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3900, "ignore_eos": True,
                                                               "stream": stream})
            self.until_running(1)
            connection.close()
            self.until_running(0, 10)

    def until_running(self, count, seconds=30):
        end = time.monotonic() + seconds
        while True:
            running = 0
            for port in (self.port + 1, self.port + 2):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("GET", "/metrics")
                running += int(re.search(r"^isomer_engine_running (\d+)", connection.getresponse().read().decode(), re.M)[1])
                connection.close()
            if running == count:
                return
            self.assertLess(time.monotonic(), end, f"{running} requests run, not {count}")
            time.sleep(0.02)

    def test_streams_come_through_as_they_are_made(self):
        connection = self.open("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3000, "ignore_eos": True,
                                                           "stream": True})
        response = connection.getresponse()
        start = time.monotonic()
        response.read(1)
        first = time.monotonic() - start
        response.read()
        whole = time.monotonic() - start
        connection.close()
        self.assertLess(first, whole / 3)


if __name__ == "__main__":
    isomer.main()
