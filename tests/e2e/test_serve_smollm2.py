#!/usr/bin/env python3
"""A real model through OpenAI's own client.   test_serve_smollm2.py PATH_TO_ISOMER"""
import asyncio
import json
import pathlib
import threading
import unittest
from typing import Annotated, Literal, Optional

import isomer
from serving import Server

isomer.need_packages("openai")
import openai  # noqa: E402
from openai.types import completion_create_params as text_params  # noqa: E402
from openai.types.chat import completion_create_params as chat_params  # noqa: E402
import pydantic  # noqa: E402

MODEL = isomer.need_model("ISOMER_TEST_SMOLLM2")
GOLDEN = json.loads((pathlib.Path(isomer.SOURCE) / "tests/golden/smollm2/greedy.json").read_text())
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


def hello(text="Why is the sky blue?"):
    return [{"role": "user", "content": text}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", "2048", "--max-sequences", "16", "--kv-memory", "400", "--api-key", "k",
                            "--served-model-name", "smollm2", model=MODEL)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="k", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()

    def chat(self, messages=None, **options):
        return self.client.chat.completions.create(model="smollm2", messages=messages or hello(),
                                                   **{"max_tokens": 24, "temperature": 0, **options})

    def complete(self, prompt="Once upon a time", **options):
        return self.client.completions.create(model="smollm2", prompt=prompt,
                                              **{"max_tokens": 12, "temperature": 0, **options})

    def streamed(self, **options):
        return "".join(chunk.choices[0].delta.content or "" for chunk in self.chat(stream=True, **options)
                       if chunk.choices)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["smollm2"])
        self.assertEqual(self.client.models.retrieve("smollm2").id, "smollm2")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("other/model")
        self.assertIn("other/model", str(caught.exception))

    def test_other_ways_of_the_client(self):
        raw = self.client.chat.completions.with_raw_response.create(model="smollm2", messages=hello(), max_tokens=3)
        self.assertTrue(raw.headers["x-request-id"])
        self.assertEqual(raw.parse().usage.completion_tokens, 3)
        with self.client.chat.completions.stream(model="smollm2", messages=hello(), max_tokens=200, temperature=0,
                                                 stop=".") as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion().choices[0].message.content
        self.assertEqual(final, self.chat(max_tokens=200, stop=".").choices[0].message.content)
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.05).chat.completions.create(model="smollm2", messages=hello(), max_tokens=900)
        stream = self.chat(stream=True, max_tokens=1500, extra_body={"ignore_eos": True})
        for _, _ in zip(range(3), stream):
            pass
        stream.close()  # a program that has heard enough
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}})
        self.assertEqual(caught.exception.param, "response_format")

        async def together():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="k", max_retries=0) as client:
                return await asyncio.gather(*(client.chat.completions.create(
                    model="smollm2", messages=hello(), max_tokens=8, temperature=0) for _ in range(12)))
        texts = {answer.choices[0].message.content for answer in asyncio.run(together())}
        self.assertEqual(texts, {self.chat(max_tokens=8).choices[0].message.content})

    def test_greedy_text_equals_transformers_all_at_once(self):
        """Ten conversations in one batch, streamed and not."""
        texts = {}

        def ask(number, stream):
            case = GOLDEN[number]
            options = {"messages": hello(case["prompt"]), "max_tokens": len(case["output_ids"])}
            if stream:
                texts[number, stream] = self.streamed(**options)
            else:
                answer = self.chat(**options)
                assert answer.usage.prompt_tokens == len(case["prompt_ids"])
                texts[number, stream] = answer.choices[0].message.content
        threads = [threading.Thread(target=ask, args=(n, s)) for n in range(len(GOLDEN)) for s in (False, True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for (number, stream), text in texts.items():
            self.assertEqual(text, GOLDEN[number]["text"], (number, stream))
        self.assertEqual(len(texts), 2 * len(GOLDEN))

    def test_n_and_seed(self):
        first = self.chat(n=4, temperature=1.2, seed=5, top_p=0.95)
        again = self.chat(n=4, temperature=1.2, seed=5, top_p=0.95)
        other = self.chat(n=4, temperature=1.2, seed=6, top_p=0.95)
        texts = [c.message.content for c in first.choices]
        self.assertEqual(texts, [c.message.content for c in again.choices])
        self.assertNotEqual(texts, [c.message.content for c in other.choices])
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual([c.index for c in first.choices], [0, 1, 2, 3])
        streams = [""] * 4
        for chunk in self.chat(n=4, temperature=1.2, seed=5, top_p=0.95, stream=True):
            for choice in chunk.choices:
                streams[choice.index] += choice.delta.content or ""
        self.assertEqual(streams, texts)

    def test_logprobs(self):
        content = self.chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in content), self.chat().choices[0].message.content)
        for token in content:
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertAlmostEqual(token.top_logprobs[0].logprob, token.logprob, 4)
        pieces = []
        for chunk in self.chat(logprobs=True, top_logprobs=3, stream=True):
            if chunk.choices and chunk.choices[0].logprobs:
                pieces += chunk.choices[0].logprobs.content
        self.assertEqual([t.token for t in pieces], [t.token for t in content])
        echo = self.complete("The sky is blue", echo=True, logprobs=2, max_tokens=1).choices[0]
        self.assertTrue(echo.text.startswith("The sky is blue"))
        self.assertIsNone(echo.logprobs.token_logprobs[0])
        self.assertEqual("".join(echo.logprobs.tokens), echo.text)
        for offset, token in zip(echo.logprobs.text_offset, echo.logprobs.tokens):
            self.assertTrue(echo.text[offset:].startswith(token))

    def test_stop_and_penalties(self):
        whole = self.chat().choices[0].message.content
        stop = " ".join(whole.split()[4:6])
        cut = self.chat(stop=[stop]).choices[0]
        self.assertEqual((cut.message.content, cut.finish_reason), (whole[:whole.index(stop)], "stop"))
        self.assertEqual(self.streamed(stop=stop), whole[:whole.index(stop)])
        plain = self.complete("la la la la", max_tokens=16).choices[0].text
        for options in ({"frequency_penalty": 2, "presence_penalty": 2}, {"extra_body": {"repetition_penalty": 2}}):
            self.assertNotEqual(self.complete("la la la la", max_tokens=16, **options).choices[0].text, plain)

    def test_usage(self):
        answer = self.chat()
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        *chunks, last = self.chat(stream=True, stream_options={"include_usage": True})
        self.assertEqual(last.choices, [])
        self.assertEqual(last.usage.completion_tokens, answer.usage.completion_tokens)
        self.assertTrue(all(chunk.usage is None for chunk in chunks))

    def test_prefix_cache_saves_the_second_prompt(self):
        prompt = "The quick brown fox jumps over the lazy dog again. " * 140
        cached = []
        for question in ("What jumps?", "What is lazy?"):
            answer = self.chat(hello(prompt + question), max_tokens=1)
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        self.assertGreater(cached[1], 0.9 * answer.usage.prompt_tokens)

    def test_tools_reach_the_template(self):
        """SmolLM2's template has no place for tools: they are refused, but where they change something all the same."""
        plain = self.chat(max_tokens=1).usage.prompt_tokens
        self.assertEqual(self.chat(max_tokens=1, tools=TOOLS, tool_choice="none").usage.prompt_tokens, plain)
        self.assertEqual(self.chat(max_tokens=1, tools=[]).usage.prompt_tokens, plain)
        for choice in ("auto", openai.NOT_GIVEN):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(max_tokens=1, tools=TOOLS, tool_choice=choice)
            self.assertEqual(caught.exception.param, "tools")
            self.assertIn("no place for tools", str(caught.exception))
        self.assertTrue(self.chat(max_tokens=40, tools=TOOLS, tool_choice="required").choices[0].message.tool_calls)
        called = [*hello(), {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"}]
        with self.assertRaises(openai.BadRequestError):  # which adds content, and there is none
            self.chat(called, tools=TOOLS)

    def test_calls_of_tools(self):
        """SmolLM2 repeats what it has been shown; its template has no calls, so their format is an option."""
        called = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
        shown = []
        for _ in range(4):
            shown += [*hello("What is the weather in Rome?"), {"role": "assistant", "content": called}]
        messages = [*shown, *hello("What is the weather in Rome?")]
        plain = self.chat(messages, max_tokens=60).choices[0]
        self.assertEqual(plain.message.content, called)
        with Server("-c", "2048", "--max-sequences", "4", "--kv-memory", "200", "--tool-calls", "hermes",
                    "--served-model-name", "smollm2", model=MODEL) as server:
            with openai.OpenAI(base_url=server.url + "/v1", api_key="k", max_retries=0) as client:
                options = {"model": "smollm2", "messages": messages, "max_tokens": 60, "temperature": 0, "tools": TOOLS}
                choice = client.chat.completions.create(**options).choices[0]
                self.assertEqual((choice.finish_reason, choice.message.content), ("tool_calls", None))
                call, = choice.message.tool_calls
                self.assertEqual((call.type, call.function.name, json.loads(call.function.arguments)),
                                 ("function", "weather", {"city": "Rome"}))
                # Streamed, as the client's own helper joins it.
                with client.chat.completions.stream(**options) as stream:
                    final = stream.get_final_completion().choices[0]
                self.assertEqual((final.finish_reason, final.message.tool_calls[0].function.arguments),
                                 ("tool_calls", call.function.arguments))
                # And back: the answer of the tool goes into the conversation.
                back = [*messages, choice.message.model_dump(exclude_none=True),
                        {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
                # Its template has no place for a call: the model is shown what it has written.
                written = [*messages, {"role": "assistant", "content": called}, back[-1]]
                answers = [client.chat.completions.create(**{**options, "messages": these}) for these in (back, written)]
                self.assertEqual(*(answer.choices[0].message.content for answer in answers))
                self.assertEqual(*(answer.usage.prompt_tokens for answer in answers))
                # Not among those offered, not asked for, not whole: text.
                other = [{"type": "function", "function": {"name": "other"}}]
                for change in ({"tools": other}, {"tool_choice": "none"}, {"tools": openai.NOT_GIVEN}):
                    choice = client.chat.completions.create(**{**options, **change}).choices[0]
                    self.assertEqual((choice.finish_reason, choice.message.content), ("stop", called), change)
                cut = client.chat.completions.create(**{**options, "max_tokens": 8}).choices[0]
                self.assertEqual(cut.finish_reason, "length")
                self.assertTrue(called.startswith(cut.message.content) and cut.message.content)
                # Strict: a call that the model chooses to make is held to the schema, other text is not.
                schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Bergen"]}}, "required": ["city"]}
                strict = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": schema}}]
                for stream in (False, True):
                    if stream:
                        with client.chat.completions.stream(**{**options, "tools": strict}) as events:
                            choice = events.get_final_completion().choices[0]
                    else:
                        choice = client.chat.completions.create(**{**options, "tools": strict}).choices[0]
                    self.assertEqual(choice.finish_reason, "tool_calls")
                    self.assertIn(json.loads(choice.message.tool_calls[0].function.arguments)["city"], ("Oslo", "Bergen"))
                free = {**options, "messages": hello("Why is the sky blue?")}
                self.assertEqual(client.chat.completions.create(**{**free, "tools": strict}).choices[0].message.content,
                                 client.chat.completions.create(**{**free, "tools": openai.NOT_GIVEN}).choices[0].message.content)
                with self.assertRaises(openai.BadRequestError) as caught:
                    strict[0]["function"]["parameters"] = {"type": "object", "minProperties": 1}
                    client.chat.completions.create(**{**options, "tools": strict})
                self.assertEqual(caught.exception.param, "tools")
                for forced in ("required", {"type": "function", "function": {"name": "weather"}}):
                    choice = client.chat.completions.create(**options, tool_choice=forced).choices[0]
                    self.assertEqual(choice.finish_reason, "tool_calls" if forced == "required" else "stop")
                    self.assertEqual(json.loads(choice.message.tool_calls[0].function.arguments), {"city": "Rome"})

    def test_structured_output(self):
        """As the client makes a schema of a class, and the class of the answer."""
        class Person(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(extra="forbid")
            name: Annotated[str, pydantic.Field(max_length=30)]
            age: Annotated[int, pydantic.Field(ge=0, le=120)]
            kind: Literal["painter", "doctor"]
            town: Optional[Annotated[str, pydantic.Field(max_length=20)]]

        class Weather(pydantic.BaseModel):
            city: Annotated[str, pydantic.Field(max_length=20)]
            unit: Literal["C", "F"]
        messages = hello("Bob is 35 years old, and paints in Rome. Who is he? Answer in JSON.")
        parsed = self.client.chat.completions.parse(model="smollm2", messages=messages, max_tokens=200, temperature=0,
                                                    response_format=Person).choices[0].message.parsed
        self.assertEqual((parsed.name, parsed.kind), ("Bob", "painter"))
        with self.client.chat.completions.stream(model="smollm2", messages=messages, max_tokens=200, temperature=0,
                                                 response_format=Person) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_completion().choices[0].message.parsed, parsed)
        self.assertIsInstance(json.loads(self.chat(messages, max_tokens=300, response_format={"type": "json_object"}, temperature=1,
                                                   seed=3).choices[0].message.content), dict)
        call = self.client.chat.completions.parse(
            model="smollm2", messages=hello("What is the weather in Rome?"), max_tokens=100, temperature=0, tool_choice="required",
            tools=[openai.pydantic_function_tool(Weather)]).choices[0].message.tool_calls[0].function
        self.assertEqual(call.name, "Weather")
        self.assertIsInstance(call.parsed_arguments, Weather)

    def test_completions(self):
        several = self.complete(["The sky is", "Water is", "Fire is"], n=2, temperature=1, seed=1)
        self.assertEqual([c.index for c in several.choices], list(range(6)))
        ids = self.server_tokens("The sky is")
        self.assertEqual(self.complete(ids).choices[0].text, self.complete("The sky is").choices[0].text)
        best = self.complete(best_of=4, n=1, temperature=1, seed=1)
        self.assertEqual(len(best.choices), 1)
        beams = self.complete(n=2, extra_body={"use_beam_search": True, "beam_width": 4, "length_penalty": 0.8,
                                               "early_stopping": True})
        self.assertEqual(len({c.text for c in beams.choices}), 2)
        text = "".join(chunk.choices[0].text for chunk in self.complete(stream=True))
        self.assertEqual(text, self.complete().choices[0].text)
        options = {"top_k": 5, "min_p": 0.05, "priority": -1, "ignore_eos": True, "min_tokens": 12}
        self.assertEqual(self.complete(temperature=1, extra_body=options).usage.completion_tokens, 12)

    def server_tokens(self, text):
        return self.server.post("/tokenize", {"prompt": text}, headers={"Authorization": "Bearer k"})["tokens"]

    def test_embeddings(self):
        texts = ["a cat sleeps", "a kitten naps", "the stock market fell"]
        vectors = [row.embedding for row in self.client.embeddings.create(model="smollm2", input=texts).data]
        same, other = (sum(a * b for a, b in zip(vectors[0], v)) for v in vectors[1:])
        self.assertGreater(same, other)
        short = self.client.embeddings.create(model="smollm2", input=texts[0], dimensions=64)
        self.assertEqual(len(short.data[0].embedding), 64)

    def test_every_field_of_the_client_is_served_or_refused(self):
        """All that the client's own types know: taken, or refused by a sentence of its own; none is unknown."""
        of_chat = {
            "audio": {"voice": "alloy", "format": "wav"}, "frequency_penalty": 0.5, "function_call": "auto",
            "functions": [{"name": "f"}], "logit_bias": {"5": 1}, "logprobs": True, "max_completion_tokens": 2, "max_tokens": 2,
            "metadata": {"a": "b"}, "modalities": ["text"], "moderation": {"model": "m"}, "n": 2, "parallel_tool_calls": False,
            "prediction": {"type": "content", "content": "x"}, "presence_penalty": 0.5, "prompt_cache_key": "k",
            "prompt_cache_options": {"mode": "explicit"}, "prompt_cache_retention": "24h", "reasoning_effort": "low",
            "response_format": {"type": "json_object"}, "safety_identifier": "s", "seed": 5, "service_tier": "default",
            "stop": ["a", "b"], "store": True, "stream": False, "stream_options": {"include_usage": True}, "temperature": 0.5,
            "tool_choice": "none", "tools": TOOLS, "top_logprobs": 2, "top_p": 0.5, "user": "u", "verbosity": "low",
            "web_search_options": {}, "messages": hello(), "model": "smollm2"}
        of_text = {name: of_chat[name] for name in (
            "frequency_penalty", "logit_bias", "max_tokens", "model", "n", "presence_penalty", "seed", "stop", "stream",
            "stream_options", "temperature", "top_p", "user")} | {"best_of": 2, "echo": True, "logprobs": 2, "prompt": "a", "suffix": "x"}
        refused = {"audio", "function_call", "functions", "moderation", "prediction", "prompt_cache_options", "reasoning_effort",
                   "store", "verbosity", "web_search_options", "suffix"}
        needs = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}, "tools": {"tool_choice": "none"}}
        for path, values, kinds in (("/v1/chat/completions", of_chat, chat_params), ("/v1/completions", of_text, text_params)):
            base = {name: values[name] for name in ("messages", "prompt") if name in values}
            known = {"stream"} | set(kinds.CompletionCreateParamsBase.__annotations__)
            self.assertEqual(set(values), known)
            for name, value in values.items():
                limit = {} if name.startswith("max_") else {"max_tokens": 2}
                status, _, text = self.server.request("POST", path, {**base, **limit, **needs.get(name, {}), name: value},
                                                      {"Authorization": "Bearer k"})
                self.assertEqual(status, 400 if name in refused else 200, (name, text))
                if name in refused:
                    error = json.loads(text)["error"]
                    self.assertEqual((error["code"], error["param"]), ("unsupported_parameter", name))

    def test_fields_do_what_they_say(self):
        ids = self.server_tokens(" blue")
        forced = self.complete("The sky is", logit_bias={str(ids[-1]): 100}, max_tokens=3).choices[0].text
        self.assertEqual(forced, " blue blue blue")
        self.assertNotIn(" blue", self.complete("The sky is blue. The sky is", logit_bias={str(ids[-1]): -100}, max_tokens=8).choices[0].text)
        whole = self.complete("One, two, three, four,", max_tokens=24).choices[0].text
        for start in range(2, 12, 3):  # stop strings of several tokens, which end within one
            stop = whole[start:start + 7]
            options = {"prompt": "One, two, three, four,", "max_tokens": 24, "stop": [stop, "never"]}
            cut = self.complete(**options).choices[0]
            self.assertEqual((cut.text, cut.finish_reason), (whole[:whole.index(stop)], "stop"))
            self.assertEqual("".join(c.choices[0].text for c in self.complete(**options, stream=True)), cut.text)
        several = self.complete(["A cat", "A dog"], n=2, echo=True, temperature=1, seed=3, max_tokens=6)
        texts = [choice.text for choice in several.choices]
        self.assertEqual([text[:5] for text in texts], ["A cat", "A cat", "A dog", "A dog"])
        streams, usage = [""] * 4, None
        for chunk in self.complete(["A cat", "A dog"], n=2, echo=True, temperature=1, seed=3, max_tokens=6, stream=True,
                                   stream_options={"include_usage": True}):
            usage = chunk.usage
            for choice in chunk.choices:
                streams[choice.index] += choice.text
        self.assertEqual(streams, texts)
        self.assertEqual(usage.model_dump(), several.usage.model_dump())
        tokens = [self.server_tokens("The sky is"), self.server_tokens("Water is")]
        self.assertEqual([c.text for c in self.complete(tokens).choices],
                         [self.complete("The sky is").choices[0].text, self.complete("Water is").choices[0].text])
        for one, other in (({"min_p": 1}, {}), ({"top_k": 1}, {}), ({"min_p": 1, "repetition_penalty": 1.3}, {"repetition_penalty": 1.3})):
            self.assertEqual(self.complete(temperature=1, extra_body=one).choices[0].text,
                             self.complete(temperature=0, extra_body=other).choices[0].text)
        end = self.chat(hello("Say OK."), max_tokens=200).choices[0]
        self.assertEqual(end.finish_reason, "stop")
        on = self.chat(hello("Say OK."), max_tokens=200, extra_body={"ignore_eos": True}).choices[0]
        self.assertEqual(on.finish_reason, "length")
        self.assertTrue(on.message.content.startswith(end.message.content))
        first = self.server_tokens(whole)[3]
        self.assertEqual(self.complete("One, two, three, four,", max_tokens=24, extra_body={"stop_token_ids": [first]}).choices[0].finish_reason,
                         "stop")
        self.assertEqual(self.chat(max_completion_tokens=3, max_tokens=None).usage.completion_tokens, 3)

    def raises(self, wanted, ask, **parts):
        """What the client makes of a failure: a class of its own, and the parts of OpenAI's error object."""
        with self.assertRaises(wanted) as caught:
            ask()
        for name, value in {"type": "invalid_request_error", "param": None, **parts}.items():
            self.assertEqual(getattr(caught.exception, name), value, (name, caught.exception))
        self.assertTrue(caught.exception.body["message"])

    def test_errors_are_the_clients_classes(self):
        def strange(key):
            return openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=0)
        bad, wrong = openai.BadRequestError, openai.NotFoundError
        self.raises(openai.AuthenticationError, strange("x").models.list, code="invalid_api_key", status_code=401)
        self.raises(openai.AuthenticationError, lambda: strange("x").chat.completions.create(model="smollm2", messages=hello()),
                    code="invalid_api_key")
        for ask in (lambda: self.client.chat.completions.create(model="gpt", messages=hello()),
                    lambda: self.client.completions.create(model="gpt", prompt="a"),
                    lambda: self.client.embeddings.create(model="gpt", input="a"), lambda: self.client.models.retrieve("gpt")):
            self.raises(wrong, ask, code="model_not_found", param="model", status_code=404)
        self.raises(wrong, lambda: self.client.images.generate(prompt="a"), code="unknown_url", status_code=404)
        self.raises(bad, lambda: self.chat(temperature=1000), code="decimal_above_max_value", param="temperature", status_code=400)
        self.raises(bad, lambda: self.chat(top_p=-1), code="decimal_below_min_value", param="top_p")
        self.raises(bad, lambda: self.chat(n=0), code="integer_below_min_value", param="n")
        self.raises(bad, lambda: self.chat(n=1000), code="integer_above_max_value", param="n")
        self.raises(bad, lambda: self.chat(seed="x"), code="invalid_type", param="seed")
        self.raises(bad, lambda: self.chat(extra_body={"tempratur": 1}), code="unknown_parameter", param="tempratur")
        self.raises(bad, lambda: self.complete(suffix="x"), code="unsupported_parameter", param="suffix")
        self.raises(bad, lambda: self.chat(hello("word " * 4000)), code="context_length_exceeded", param="messages")

    def test_a_full_queue_is_the_clients_class(self):
        with Server("-c", "2048", "--max-sequences", "1", "--max-queue", "1", model=MODEL) as server, \
                openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            options = {"model": server.get("/v1/models").split('"id":"')[1].split('"')[0], "messages": hello(), "max_tokens": 2000,
                       "stream": True, "extra_body": {"ignore_eos": True}}
            running = client.chat.completions.create(**options)
            next(running)
            waiting = threading.Thread(target=lambda: list(client.chat.completions.create(**{**options, "max_tokens": 1})))
            waiting.start()
            server.wait_for(lambda m: m["isomer_engine_waiting"] == 1)
            self.raises(openai.RateLimitError, lambda: client.chat.completions.create(**options), code="rate_limit_exceeded",
                        type="requests", status_code=429)
            running.close()
            waiting.join()

    def test_emoji_and_cjk(self):
        pieces = [chunk.choices[0].delta.content or "" for chunk in
                  self.chat(hello("Repeat: 🤷🏽‍♀️ 你好 안녕 🎉"), max_tokens=60, stream=True) if chunk.choices]
        self.assertNotIn("\ufffd", "".join(pieces).rstrip("\ufffd"))  # but where the limit cuts one
        self.assertEqual("".join(pieces), self.chat(hello("Repeat: 🤷🏽‍♀️ 你好 안녕 🎉"), max_tokens=60).choices[0].message.content)


if __name__ == "__main__":
    isomer.main()
