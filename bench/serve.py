#!/usr/bin/env python3
"""Load on servers that speak OpenAI's API: time to the first token, between tokens, throughput,
percentiles; several servers side by side.

    bench/serve.py
    bench/serve.py http://127.0.0.1:8000 --concurrency 64 --requests 256 --lengths 512:128
    bench/serve.py https://api.example.com/v1 --chat --model NAME     # OPENAI_API_KEY is sent
    bench/serve.py 'isomer=build/release/isomer serve m.gguf -c 4096 --port {port}' \\
        'llama-server=llama-server -m m.gguf -c 65536 -np 16 --port {port}' \\
        --rate 4 --requests 200 --lengths chat --output bench/results/serve

Without servers, `isomer serve` of SmolLM2 (or --gguf) is started, and beside it llama-server where PATH
has one; the table goes to serve.md, the plot to serve.svg.

Closed loop (--concurrency N): N clients, each of which asks again as soon as it is answered. Open
loop (--rate R): requests come at random, R a second on average, however long answers take. Servers
are asked one after another, with the same requests in the same order; a command with {port} in it is
started, waited for and ended. Give them the same model, threads and context, and let nothing else run.
Answers are as long as asked for by "ignore_eos"; to a server that refuses it (OpenAI's own does) requests go
without, answers end where they end, and it is said.
--idle N holds N connections open beside the load, and measures what they cost a server that was
started."""
import argparse
import asyncio
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.parse

import machine
import servers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

WORDS = ("the of and to in is that it was for on are as with his they at be this have from or one had by word but not "
         "what all were we when your can said there use an each which she do how their if will up other about out many "
         "then them these so some her would make like him into time has look two more write go see number no way could "
         "people my than first water been call who oil its now find long down day did get come made may part").split()


class Length:
    """Prompt and output tokens of each request."""

    def __init__(self, text):
        self.text = text
        self.fixed = None
        if text not in ("chat", "random"):
            self.fixed = tuple(map(int, text.split(":")))

    def draw(self, rng):
        if self.fixed:
            return self.fixed
        if self.text == "random":
            return rng.randint(16, 1024), rng.randint(16, 256)
        # Log-normal with the spread of conversations that people have shared: half of the prompts under 60
        # words, some of a thousand; half of the answers under 130 tokens.
        return (min(1024, max(4, round(rng.lognormvariate(math.log(60), 1.3)))),
                min(512, max(4, round(rng.lognormvariate(math.log(130), 0.9)))))


class Outcome:
    def __init__(self):
        self.start = self.end = 0.0
        self.times = []  # of each piece of text
        self.n_prompt = self.n_output = 0
        self.error = None


class Unchunk:
    """The body of a chunked answer, as it comes."""

    def __init__(self):
        self.rest = b""
        self.is_over = False

    def feed(self, data):
        self.rest += data
        body = []
        while not self.is_over and (end := self.rest.find(b"\r\n")) >= 0:
            size = int(self.rest[:end], 16)
            if len(self.rest) < end + size + 4:
                break
            body.append(self.rest[end + 2:end + 2 + size])
            self.rest = self.rest[end + size + 4:]
            self.is_over = size == 0
        return b"".join(body)


TEXTS = b'"text":"', b'"content":"', b'"reasoning_content":"'  # of completions; of chats


def read_event(line, now, outcome):
    """Most events are one token each; a client that parsed them whole would be slower than a GPU."""
    if b'"error"' in line or b'"usage":{' in line or b'"usage": {' in line:
        event = json.loads(line[6:])
        if event.get("error"):
            raise RuntimeError(event["error"]["message"])
        if event.get("usage"):
            outcome.n_prompt = event["usage"]["prompt_tokens"]
            outcome.n_output = event["usage"]["completion_tokens"]
    elif any(name in line and name + b'"' not in line for name in TEXTS):
        outcome.times.append(now)


class Answer(asyncio.Protocol):
    """Sends one request and reads what is streamed back. Called as bytes arrive: a task to be woken for every token
    would take a third of what a small model on the same cores takes to make it."""

    def __init__(self, request, outcome):
        self.request = request
        self.outcome = outcome
        self.over = asyncio.get_running_loop().create_future()
        self.head = b""  # all of it, while it is not whole
        self.unchunk = None
        self.rest = b""
        self.is_done = False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        now = time.perf_counter()
        try:
            self.take(data, now)
        except (RuntimeError, ValueError, KeyError) as error:
            self.end(error)

    def take(self, data, now):
        if self.head is not None:
            self.head += data
            head, whole, data = self.head.partition(b"\r\n\r\n")
            if not whole or (b" 200 " not in head.partition(b"\r\n")[0] and not data):
                return  # a refusal's text, or the connection's end, is still to come
            self.check_status(head, data)
            self.head = None
            if b"\r\ntransfer-encoding: chunked" in head.lower():
                self.unchunk = Unchunk()
        *lines, self.rest = (self.rest + (self.unchunk.feed(data) if self.unchunk else data)).replace(b'": "', b'":"').split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                read_event(line, now, self.outcome)
            elif line.startswith(b"data: [DONE]"):
                self.is_done = True
        if self.unchunk and self.unchunk.is_over:
            self.end()

    @staticmethod
    def check_status(head, body):
        status = head.partition(b"\r\n")[0]
        if b" 200 " not in status:
            raise RuntimeError(f"{status.decode(errors='replace')}: {body[:600].decode(errors='replace')}")

    def connection_lost(self, error):
        try:
            if self.head is not None and not error:
                head, _, body = self.head.partition(b"\r\n\r\n")
                self.check_status(head, body)
        except RuntimeError as refusal:
            error = refusal
        self.end(error)

    def end(self, error=None):
        if self.over.done():
            return
        if not error and not self.is_done:
            error = RuntimeError("the answer broke off")
        if error:
            self.over.set_exception(error)
        else:
            self.over.set_result(None)
        self.transport.close()


async def ask(server, body, outcome):
    url = urllib.parse.urlsplit(servers.base(server))
    path = url.path + ("/chat/completions" if "messages" in body else "/completions")
    tls = ssl.create_default_context() if url.scheme == "https" else None
    text = json.dumps(body)
    head = {"Host": url.netloc.rpartition("@")[2], "Content-Type": "application/json", "Connection": "close",
            "Content-Length": len(text), **servers.key_header()}
    request = (f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items())
               + "\r\n" + text).encode()
    outcome.start = time.perf_counter()
    try:
        _, answer = await asyncio.get_running_loop().create_connection(
            lambda: Answer(request, outcome), url.hostname, url.port or (443 if tls else 80), ssl=tls)
        await answer.over
        outcome.n_output = outcome.n_output or len(outcome.times)  # of servers that tell no usage
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    outcome.end = time.perf_counter()


def make_bodies(options, count, seed):
    rng = random.Random(seed)
    lengths = Length(options.lengths)
    bodies = []
    for number in range(count):
        n_prompt, n_output = lengths.draw(rng)
        prompt = ([rng.randrange(1, options.vocabulary) for _ in range(n_prompt)] if options.vocabulary
                  else " ".join([str(number), *rng.choices(WORDS, k=n_prompt - 1)]))
        bodies.append({**prompt_of(prompt, options), "max_tokens": n_output,
                       "temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}})
    return bodies


def prompt_of(text, options):
    return {"messages": [{"role": "user", "content": text}]} if options.chat else {"prompt": text}


def adapt(server, name, bodies, options):
    """Warms a server up; the bodies as it takes them, and what had to change. Servers differ in what they refuse."""
    model = options.model or servers.only_model(server)
    bodies = [{"model": model, **body} for body in bodies]
    changes = []
    while True:
        warm = {**bodies[0], **prompt_of("warm up", options)}
        limit = "max_tokens" if "max_tokens" in warm else "max_completion_tokens"
        outcomes = asyncio.run(closed_loop(server, [{**warm, limit: 8}] * 2, 2))
        error = outcomes[0].error or outcomes[1].error
        if not error:
            break
        if "ignore_eos" in error and "ignore_eos" in warm:
            bodies = [{key: value for key, value in body.items() if key != "ignore_eos"} for body in bodies]
            changes.append(f"{name} refuses ignore_eos: its answers end where they end")
        elif "max_completion_tokens" in error and "max_tokens" in warm:
            bodies = [{("max_completion_tokens" if key == "max_tokens" else key): value for key, value in body.items()}
                      for body in bodies]
        else:
            sys.exit(f"{name} does not answer: {error}")
    return bodies, changes


async def closed_loop(server, bodies, concurrency):
    outcomes = [Outcome() for _ in bodies]
    waiting = iter(range(len(bodies)))

    async def client():
        for number in waiting:
            await ask(server, bodies[number], outcomes[number])
    await asyncio.gather(*(client() for _ in range(concurrency)))
    return outcomes


async def open_loop(server, bodies, rate, seed):
    outcomes = [Outcome() for _ in bodies]
    rng = random.Random(seed)
    tasks = []
    for number, body in enumerate(bodies):
        tasks.append(asyncio.create_task(ask(server, body, outcomes[number])))
        await asyncio.sleep(rng.expovariate(rate))
    await asyncio.gather(*tasks)
    return outcomes


def load_part(server, bodies, options, part):
    """Every processes-th request, from this process."""
    bodies = bodies[part::options.processes]
    clients = options.concurrency // options.processes + (part < options.concurrency % options.processes)
    return asyncio.run(open_loop(server, bodies, options.rate / options.processes, options.seed + part) if options.rate
                       else closed_loop(server, bodies, clients))


def load(server, bodies, options):
    if options.processes == 1:
        return load_part(server, bodies, options, 0)
    with multiprocessing.Pool(options.processes) as pool:
        parts = [pool.apply_async(load_part, (server, bodies, options, part)) for part in range(options.processes)]
        return [outcome for part in parts for outcome in part.get()]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else float("nan")


def summarise(outcomes):
    good = [o for o in outcomes if not o.error and o.times]
    if not good:
        sys.exit(f"no request was answered: {outcomes[0].error}")
    errors = {o.error for o in outcomes if o.error}
    for error in sorted(errors)[:3]:
        print("failed:", error, file=sys.stderr)
    span = max(o.end for o in good) - min(o.start for o in outcomes)
    first = [o.times[0] - o.start for o in good]
    between = [b - a for o in good for a, b in zip(o.times, o.times[1:])]
    whole = [o.end - o.start for o in good]
    return {"answered": len(good), "failed": len(outcomes) - len(good), "seconds": span,
            "output_per_second": sum(o.n_output for o in good) / span,
            "prompt_per_second": sum(o.n_prompt for o in good) / span,
            "requests_per_second": len(good) / span, "first": first, "between": between, "whole": whole,
            "worst_first": max(first) / percentile(first, 0.5)}


ROWS = (("answered", "requests answered", "{:.0f}"), ("failed", "failed", "{:.0f}"),
        ("output_per_second", "output tokens/s", "{:.1f}"), ("prompt_per_second", "prompt tokens/s", "{:.1f}"),
        ("requests_per_second", "requests/s", "{:.2f}"))
TIMES = (("first", "first token"), ("between", "between tokens"), ("whole", "whole answer"))


def table(results):
    lines = ["| | " + " | ".join(results) + " |", "|---" * (len(results) + 1) + "|"]
    for key, name, form in ROWS:
        lines.append(f"| {name} | " + " | ".join(form.format(r[key]) for r in results.values()) + " |")
    for key, name in TIMES:
        for share in (0.5, 0.9, 0.99):
            cells = (f"{percentile(r[key], share) * 1e3:.1f}" for r in results.values())
            lines.append(f"| {name}, p{share * 100:.0f}, ms | " + " | ".join(cells) + " |")
    for name, r in results.items():
        if "idle_bytes" in r:
            lines.append(f"| {r['idle_connections']} idle connections of {name} | {r['idle_bytes'] / 1e6:.1f} MB, "
                         f"{r['idle_cpu']:.1%} CPU |" + " |" * (len(results) - 1))
    cells = (f"{r['worst_first']:.2f}" for r in results.values())
    lines.append("| worst first token / median | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def default_servers(options):
    """Isomer of this source tree, and llama-server where PATH has one, with the same model, context and threads."""
    builds = [os.environ.get("ISOMER_BIN", ""), os.path.join(ROOT, "build", "release", "isomer"), shutil.which("isomer") or ""]
    binary = next((path for path in builds if os.access(path, os.X_OK)), None)
    if not binary:
        sys.exit("there is no isomer to measure: scripts/build builds one, or name servers")
    model = options.gguf
    if not model:
        model = subprocess.run([os.path.join(ROOT, "scripts", "fetch-model"), "smollm2"], stdout=subprocess.PIPE, text=True,
                               check=True).stdout.splitlines()[-1]
    n, context, threads = max(options.concurrency, 16), 4096, machine.physical_cores()
    found = [f"isomer={binary} serve {model} -c {context} -t {threads} --access-log none --port {{port}}"]
    if shutil.which("llama-server"):
        found.append(f"llama-server=llama-server -m {model} -c {n * context} -np {n} -t {threads} -tb {threads} --port {{port}}")
    return found


def name_and_place(text):
    """NAME=URL or NAME=COMMAND; of a lone URL the name is its host."""
    name, equals, what = text.partition("=")
    if text.startswith(("http://", "https://")):
        name, what = urllib.parse.urlsplit(text).netloc, text
    elif not equals or not (what.startswith(("http://", "https://")) or "{port}" in what):
        sys.exit(f"a server is NAME=URL, or NAME=COMMAND with {{port}} in it, not: {text}")
    return name, what


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="NAME=URL|COMMAND")
    parser.add_argument("--gguf", metavar="MODEL", help="model of the servers that are started where none is named (SmolLM2)")
    parser.add_argument("--chat", action="store_true", help="ask /v1/chat/completions and not /v1/completions")
    parser.add_argument("--requests", type=int, default=128)
    loop = parser.add_mutually_exclusive_group()
    loop.add_argument("--concurrency", type=int, default=16, help="clients of the closed loop (16)")
    loop.add_argument("--rate", type=float, help="requests a second of the open loop")
    parser.add_argument("--lengths", default="128:64", help="PROMPT:OUTPUT words and tokens, random, or chat (like people's)")
    parser.add_argument("--vocabulary", type=int, default=0, metavar="N",
                        help="prompts are random token ids below N, exactly as many as asked for, and not words")
    parser.add_argument("--processes", type=int, default=1,
                        help="that clients are spread over, for servers faster than one can follow (1)")
    parser.add_argument("--warm-up", type=int, default=0, metavar="N",
                        help="requests of the same lengths, from --concurrency clients, before those that are measured")
    parser.add_argument("--idle", type=int, default=0, help="connections that are open and do nothing")
    parser.add_argument("--model", help="the name that requests give; without it the one that the server tells")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="write OUTPUT.md, OUTPUT.json and OUTPUT.svg (serve, where no server is named)")
    options = parser.parse_args()
    if options.chat and options.vocabulary:
        parser.error("chats are made of words: --chat and --vocabulary do not go together")
    # Requests of a process without a client would never be sent.
    options.processes = max(1, min(options.processes, options.requests, options.requests if options.rate else options.concurrency))
    options.output = options.output or (None if options.servers else "serve")
    if options.output:
        import plot  # says now, and not after the load, that it needs matplotlib
    bodies = make_bodies(options, options.requests, options.seed)
    warm_up = make_bodies(options, options.warm_up, f"warm-up {options.seed}")  # Random(-n) is Random(n)
    results, notes = {}, []
    for name, what in map(name_and_place, options.servers or default_servers(options)):
        with servers.running(what) as (url, pid):
            its_bodies, changes = adapt(url, name, warm_up + bodies, options)
            if warm_up:
                asyncio.run(closed_loop(url, its_bodies[:options.warm_up], options.concurrency))
            shown = re.sub(r"(^| )/\S*/", r"\1", what)  # where files lie on this machine is nobody's business
            notes += [f"- {name}: `{shown}`", *(f"- {change}" for change in changes)]
            with servers.idle_connections(url, options.idle, pid) as cost:
                results[name] = {**summarise(load(url, its_bodies[options.warm_up:], options)), **cost}
    kind = f"{options.rate:g} requests a second" if options.rate else f"{options.concurrency} clients"
    before = f" after {options.warm_up} others" if options.warm_up else ""
    text = f"{options.requests} requests{before}, {kind}, lengths {options.lengths}\n\n{table(results)}\n\n" + "\n".join(notes) + "\n"
    print(text)
    if options.output:
        with open(options.output + ".md", "w") as out:
            out.write(f"# Serving\n\n{machine.describe()}\n\n{text}\n![times]({options.output.rsplit('/', 1)[-1]}.svg)\n")
        with open(options.output + ".json", "w") as out:
            json.dump(results, out)
        plot.distributions(options.output + ".svg", [
            (name + ", ms", {server: [v * 1e3 for v in r[key]] for server, r in results.items()}) for key, name in TIMES])


if __name__ == "__main__":
    main()
