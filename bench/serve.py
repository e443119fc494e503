#!/usr/bin/env python3
"""Load on servers that speak OpenAI's completions API: time to the first token, between tokens,
throughput, percentiles; several servers side by side.

    bench/serve.py isomer=http://127.0.0.1:8000 --concurrency 64 --requests 256 --lengths 512:128
    bench/serve.py 'isomer=build/release/isomer serve m.gguf -c 4096 --port {port}' \\
        'llama-server=llama-server -m m.gguf -c 65536 -np 16 --port {port}' \\
        --rate 4 --requests 200 --lengths chat --output bench/results/serve

Closed loop (--concurrency N): N clients, each of which asks again as soon as it is answered. Open
loop (--rate R): requests come at random, R a second on average, however long answers take. Servers
are asked one after another, with the same requests in the same order; a command with {port} in it is
started, waited for and ended. Give them the same model, threads and context, and let nothing else run.
--idle N holds N connections open beside the load, and measures what they cost a server that was
started."""
import argparse
import asyncio
import json
import math
import multiprocessing
import random
import sys
import time
import urllib.parse

import servers

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


def read_event(line, now, outcome):
    """Most events are one token each; a client that parsed them whole would be slower than a GPU."""
    if b'"error"' in line or b'"usage":{' in line or b'"usage": {' in line:
        event = json.loads(line[6:])
        if event.get("error"):
            raise RuntimeError(event["error"]["message"])
        if event.get("usage"):
            outcome.n_prompt = event["usage"]["prompt_tokens"]
            outcome.n_output = event["usage"]["completion_tokens"]
    elif b'"text":"' in line and b'"text":""' not in line:
        outcome.times.append(now)


async def ask(server, body, outcome):
    url = urllib.parse.urlsplit(server)
    outcome.start = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 80, limit=1 << 22)
        text = json.dumps(body).encode()
        writer.write(b"POST %s/v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (url.path.rstrip("/").encode(), url.netloc.encode(), len(text), text))
        status = await reader.readline()
        chunked = False
        while (line := await reader.readline()) not in (b"\r\n", b""):
            chunked |= line.lower().startswith(b"transfer-encoding: chunked")
        if b" 200 " not in status or not chunked:
            raise RuntimeError(f"{status.decode().strip()}: {(await reader.read(300)).decode(errors='replace')}")
        unchunk, rest = Unchunk(), b""
        while not unchunk.is_over and (data := await reader.read(1 << 16)):
            now = time.perf_counter()
            *lines, rest = (rest + unchunk.feed(data)).replace(b'": "', b'":"').split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    read_event(line, now, outcome)
        if not unchunk.is_over:
            raise RuntimeError("the answer broke off")
        writer.close()
    except (OSError, RuntimeError, ValueError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    outcome.end = time.perf_counter()


def make_bodies(options):
    rng = random.Random(options.seed)
    lengths = Length(options.lengths)
    bodies = []
    for number in range(options.requests):
        n_prompt, n_output = lengths.draw(rng)
        prompt = ([rng.randrange(1, options.vocabulary) for _ in range(n_prompt)] if options.vocabulary
                  else " ".join([str(number), *rng.choices(WORDS, k=n_prompt - 1)]))
        bodies.append({"prompt": prompt, "max_tokens": n_output,
                       "temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}})
        if options.model:
            bodies[-1]["model"] = options.model
    return bodies


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="NAME=URL|COMMAND")
    parser.add_argument("--requests", type=int, default=128)
    loop = parser.add_mutually_exclusive_group()
    loop.add_argument("--concurrency", type=int, default=16, help="clients of the closed loop (16)")
    loop.add_argument("--rate", type=float, help="requests a second of the open loop")
    parser.add_argument("--lengths", default="128:64", help="PROMPT:OUTPUT words and tokens, random, or chat (like people's)")
    parser.add_argument("--vocabulary", type=int, default=0, metavar="N",
                        help="prompts are random token ids below N, exactly as many as asked for, and not words")
    parser.add_argument("--processes", type=int, default=1,
                        help="that clients are spread over, for servers faster than one can follow (1)")
    parser.add_argument("--idle", type=int, default=0, help="connections that are open and do nothing")
    parser.add_argument("--model", help="the name that requests give")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="write OUTPUT.md, OUTPUT.json and, with matplotlib, OUTPUT.svg")
    options = parser.parse_args()
    bodies = make_bodies(options)
    results = {}
    for server in options.servers:
        name, _, what = server.partition("=")
        with servers.running(what) as (url, pid):
            warm = dict(bodies[0], prompt="warm up", max_tokens=8)
            asyncio.run(closed_loop(url, [warm, warm], 2))
            with servers.idle_connections(url, options.idle, pid) as cost:
                results[name] = {**summarise(load(url, bodies, options)), **cost}
    kind = f"{options.rate:g} requests a second" if options.rate else f"{options.concurrency} clients"
    text = f"{options.requests} requests, {kind}, lengths {options.lengths}\n\n{table(results)}\n"
    print(text)
    if options.output:
        with open(options.output + ".md", "w") as out:
            out.write(f"# Serving\n\n{text}\n![times]({options.output.rsplit('/', 1)[-1]}.svg)\n")
        with open(options.output + ".json", "w") as out:
            json.dump(results, out)
        import plot
        plot.distributions(options.output + ".svg", [
            (name + ", ms", {server: [v * 1e3 for v in r[key]] for server, r in results.items()}) for key, name in TIMES])


if __name__ == "__main__":
    main()
