#!/usr/bin/env python3
"""Makes the expected outputs of the chat template tests with jinja2 itself.

templates.json: every *.jinja here rendered on a set of conversations.
language.json:  every snippet of language.txt rendered on one conversation.

The environment is set up as transformers sets it up for chat templates; the clock stands still.
A conversation that the template refuses is recorded as null.

Usage: generate.py        (needs jinja2 3.1.6; run in this folder or anywhere)
"""
import copy
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = 1753012800  # 2025-07-20 12:00:00 UTC


class Generation(jinja2.ext.Extension):
    """The tag around text that the assistant wrote; here it only gives the text back."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        moment = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
        return moment.replace(tzinfo=None).strftime(format)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, id="abcdef123"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, name="weather", id="abcdef123"):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": content}


TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Weather in \"a city\"\n— ünï <b>&'x'",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "such as 東京"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14.0, "default": 3},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "deep": {"type": "array", "items": {"type": "object", "properties": {
                "x": {"type": "number", "default": 1e-07}}}}},
            "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "description": "",
                                      "parameters": {"type": "object", "properties": {}}}},
]

INPUTS = {
    "one turn": {"messages": [user("Hello!")]},
    "no prompt": {"messages": [user("q"), assistant("a")], "add_generation_prompt": False},
    "system": {"messages": [system("You are a pirate.\nBe brief. "), user("Hi")]},
    "many turns": {"messages": [system("s"), user("q1"), assistant("a1"), user("q2"),
                                assistant(" a2\n"), user("q3")]},
    "unicode": {"messages": [user("  你好 👩‍👩‍👧 \u00a0"), assistant("Ünï\u2028\u0301x"),
                             user("é\"'\\n\\ <|im_end|> {{ x }} {% y %}")]},
    "empty": {"messages": [system(""), user(""), assistant(""), user("x")]},
    "wrong order": {"messages": [assistant("hi"), user("x"), user("y")]},
    "parts": {"messages": [system([{"type": "text", "text": "sys"}]),
                           user([{"type": "text", "text": "first"}, {"type": "image"},
                                 {"type": "text", "text": " second "}])]},
    "thinking": {"messages": [user("q"), assistant("<think>\nr 1\n</think>\n\nans 1"), user("q2"),
                              assistant("ans 2", reasoning_content="r 2\n")]},
    "thinking off": {"messages": [user("q")], "extra": {"enable_thinking": False}},
    "tools": {"messages": [user("Weather in Paris?")], "tools": TOOLS},
    "tools, system": {"messages": [system("Sys."), user("Weather?")], "tools": TOOLS,
                      "extra": {"tools_in_user_message": False, "date_string": "1 May 2025",
                                "builtin_tools": ["brave_search", "code_interpreter"]}},
    "tool call": {"messages": [
        user("Weather?"),
        assistant("", tool_calls=[call("weather", {"city": "Paris é", "days": 2, "f": 1.0,
                                                   "n": None, "b": True, "l": [1, 2.5, 1e22]})]),
        result('{"temp": 21.5}'), assistant("It is 21.5°C."), user("thanks")], "tools": TOOLS},
    "tool calls": {"messages": [
        user("Weather?"),
        {"role": "assistant", "content": None, "tool_calls": [
            call("weather", {"city": "Paris"}), call("noop", {}, "zzzzzz999")]},
        result("21"), result("ok", "noop", "zzzzzz999"), user("and?")], "tools": TOOLS[1:]},
    "arguments as text": {"messages": [
        user("Weather?"), assistant("Let me see.", tool_calls=[
            call("weather", '{"city": "Paris"}')]),
        result({"temp": 21.5, "list": [1]})], "tools": TOOLS[1:]},
}

# What the snippets of language.txt see.
LANGUAGE = {
    "messages": [user("Hi there"), assistant("Ünï — 你好 👩‍👩‍👧 \"q\" <b>"), result("")],
    "tools": [{"n": 1}],
    "extra": {
        "d": {"a": 1, "b": [1, 2.5, None, True, "x\"'\n\u00e9\u200b"], "c": {"d": {}, "e": []},
              "f": 1e100, "g": 1e16, "h": 1e-5, "i": -0.0, "j": 123456789.123, "k": 1.0, "l": 0.1,
              "m": "it's", "n": 12345678901234, "o": 9007199254740993},
        "L": [3, 1, 2], "s": "Hello World", "n": 5, "f": 2.5, "u": "ÀÉ straße",
        "objs": [{"k": "b", "v": 2}, {"k": "A", "v": 1}, {"k": "b", "v": 3, "z": 1}]},
}


def render(env, source, given):
    given = copy.deepcopy(given)
    variables = {"messages": given["messages"], "tools": given.get("tools"), "documents": None,
                 "add_generation_prompt": given.get("add_generation_prompt", True),
                 "bos_token": "<s>", "eos_token": "</s>", **given.get("extra", {})}
    try:
        return env.from_string(source).render(**variables)
    except (jinja2.exceptions.TemplateError, ArithmeticError, AssertionError, AttributeError,
            LookupError, TypeError, ValueError):
        return None


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, indent=0)
    (HERE / name).write_text(text + "\n", encoding="utf-8")


def main():
    env = environment()
    templates = {path.name: path.read_text(encoding="utf-8")
                 for path in sorted(HERE.glob("*.jinja"))}
    write("templates.json", {
        "now": NOW, "inputs": INPUTS,
        "expected": {name: {input: render(env, source, given) for input, given in INPUTS.items()}
                     for name, source in templates.items()}})
    snippets = (HERE / "language.txt").read_text(encoding="utf-8").split("\n====\n")
    write("language.json", {
        "now": NOW, "input": LANGUAGE,
        "cases": [{"source": source, "expected": render(env, source, LANGUAGE)}
                  for source in snippets]})


if __name__ == "__main__":
    main()
