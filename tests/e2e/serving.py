"""A server under test, and plain ways to talk to it."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import isomer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def error_of(body):
    """The error object of an answer, which must be whole."""
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert error["message"] and error["type"], error
    return error


_tiny = None


def tiny_model():
    """A model with random weights and a byte-level tokenizer; it is made once a test program."""
    global _tiny
    if _tiny is None:
        _tiny = tempfile.TemporaryDirectory(prefix="isomer-test-")
        isomer.run("synth", "tiny-llama", _tiny.name + "/tiny.gguf", "--scheme", "f32")
    return _tiny.name + "/tiny.gguf"


class Server:
    """`isomer serve` on a free port of the loopback. Ends with SIGTERM and must exit with 0."""

    def __init__(self, *arguments, model=None, environment=None, port=0, wait=True):
        self.arguments = [isomer.BINARY, "serve", model or tiny_model(), "--port", str(port),
                          *map(str, arguments)]
        self.lines, self.log = [], []
        # AddressSanitizer keeps what is freed; here memory is measured.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"
        self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                        env=dict(os.environ, ASAN_OPTIONS=sanitizer, **(environment or {})))
        self.port = port
        self._serving = threading.Event()
        self._threads = [threading.Thread(target=self._read_errors, daemon=True),
                         threading.Thread(target=self._read_log, daemon=True)]
        for thread in self._threads:
            thread.start()
        if wait:
            self.wait_until_serving()

    def _read_errors(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"serving .* on http://[^ ]*:(\d+) ", line)
            if found:
                self.port = int(found[1])
                self._serving.set()
        self._serving.set()

    def _read_log(self):
        for line in self.process.stdout:
            self.log.append(line)

    def wait_until_serving(self, seconds=120):
        assert self._serving.wait(seconds), "the server does not start: " + "".join(self.lines)
        assert self.process.poll() is None, "the server has ended: " + "".join(self.lines)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}: "
                                 + "".join(self.lines[-30:]))
        self.stop()

    def end(self):
        """After the process has ended: reads what it still said."""
        for thread in self._threads:
            thread.join(10)
        self.process.stdout.close()
        self.process.stderr.close()

    def stop(self, code=0, seconds=60):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)
        self.end()
        assert self.process.returncode == code, (self.process.returncode, "".join(self.lines[-30:]))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def socket(self, timeout=60, receive_buffer=None):
        made = socket.socket()
        if receive_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.settimeout(timeout)
        made.connect(("127.0.0.1", self.port))
        return made

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, bytes) on a connection of its own."""
        connection = self.connect(timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body).encode()
            if body is not None:
                headers = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        assert status == 200, (path, status, body)
        return body.decode()

    def post(self, path, body, status=200, **options):
        """The parsed answer, whose status must be as given."""
        got, _, text = self.request("POST", path, body, **options)
        assert got == status, (path, body, got, text)
        return json.loads(text)

    def stream(self, path, body, timeout=60):
        """Yields the parsed events of a stream. OpenAI's must end with "[DONE]"."""
        connection = self.connect(timeout)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read())
            assert response.getheader("Content-Type") == "text/event-stream"
            for line in response:
                text = line.decode("utf-8").rstrip("\n")
                if text == "data: [DONE]":
                    assert response.read() == b"\n"
                    return
                if text:
                    assert text.startswith("data: "), text
                    yield json.loads(text[6:])
            assert not path.startswith("/v1/"), "the stream is cut"
        finally:
            connection.close()

    def metrics(self):
        rows = (line.rsplit(" ", 1) for line in self.get("/metrics").splitlines() if line[0] != "#")
        return {name: float(value) for name, value in rows}

    def wait_for(self, condition, seconds=90, what="the condition"):
        """Until condition(metrics) holds."""
        end = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            if condition(metrics):
                return metrics
            assert time.monotonic() < end, (what, {k: v for k, v in metrics.items() if "engine" in k})
            time.sleep(0.02)

    def wait_until_idle(self, seconds=90):
        """No request is left anywhere, and every page is free or only kept for its prefix."""
        return self.wait_for(lambda m: m["isomer_engine_running"] == 0 and m["isomer_engine_waiting"] == 0
                             and m["isomer_engine_pages_used"] == 0 and m["isomer_http_exchanges"] == 1,
                             seconds, "an idle engine")

    def memory(self, which="VmRSS"):
        """Resident bytes; the most there were with VmHWM."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(which + r":\s+(\d+) kB", status.read())[1]) * 1024
