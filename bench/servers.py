"""Servers under measurement: started where a command is given, and what idle connections cost them."""
import contextlib
import http.client
import json
import os
import resource
import shlex
import socket
import subprocess
import sys
import time
import urllib.parse


def base(url):
    """The address of the API: where a server is named by its own, that with /v1."""
    url = url.rstrip("/")
    return url if url.endswith("/v1") else url + "/v1"


def key_header():
    """What OpenAI's clients send too."""
    key = os.environ.get("OPENAI_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def models(url):
    """Ids of the models that a server tells; none while it is not ready."""
    where = urllib.parse.urlsplit(base(url))
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(where.hostname, where.port, timeout=30)
    try:
        connection.request("GET", where.path + "/models", headers=key_header())
        response = connection.getresponse()
        return [model["id"] for model in json.loads(response.read())["data"]] if response.status == 200 else []
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return []
    finally:
        connection.close()


def only_model(url):
    found = models(url)
    if len(found) != 1:
        sys.exit(f"{url} tells {len(found)} models; give one of them with --model: {', '.join(found[:8])}")
    return found[0]


@contextlib.contextmanager
def running(server):
    """The address of a server, and its process's id where it was started here: `server` is an address, or a
    command with {port} in it."""
    if server.startswith(("http://", "https://")):
        yield server, None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = shlex.split(server.replace("{port}", str(port)))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 600
            while not models(url):
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"the server does not start: {server}")
                time.sleep(0.1)
            yield url, process.pid
        finally:
            process.terminate()


def usage(pid):
    """Resident bytes and seconds of CPU."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), seconds


@contextlib.contextmanager
def idle_connections(url, count, pid):
    """Holds connections that have each been answered once; yields what they cost a process."""
    where = urllib.parse.urlsplit(url)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 1000)), hard))
    before = usage(pid)[0] if pid else 0
    cost, held = {}, []
    for _ in range(count):
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
        connection.request("GET", "/v1/models")
        connection.getresponse().read()
        held.append(connection)
    if pid and count:
        memory, start = usage(pid)
        time.sleep(2)
        cost = {"idle_connections": count, "idle_bytes": memory - before, "idle_cpu": (usage(pid)[1] - start) / 2}
    yield cost
    for connection in held:
        connection.close()
