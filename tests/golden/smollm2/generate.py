#!/usr/bin/env python3
"""Greedy continuations of SmolLM2-135M-Instruct (Q4_1 GGUF) by Hugging Face transformers, which
dequantizes the file to float32: the independent answer for tests/e2e/test_smollm2.py.
Beside each text is the smallest margin, in logits, by which one of its tokens won: how much
rounding a kernel may do before a text changes.

    tests/golden/smollm2/generate.py $(scripts/fetch-model smollm2 | tail -n 1)
"""
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    "Count from 1 to 40, separated by commas.",
    "What are the days of the week? Then name the months of the year.",
    "What is the capital of France?",
    "Write the letters of the English alphabet, one a line.",
    "Write a Python function that adds two numbers.",
    "Repeat the word apple twenty times.",
    "Translate to French: good morning.",
    "List the planets of the solar system.",
    "What is 2 + 2?",
    "Print the squares of the numbers from 1 to 12.",
]
N_TOKENS = 64


def main():
    path = pathlib.Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model.eval()
    cases = []
    for prompt in PROMPTS:
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False,
                                             add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        margins, output, step, cache = [], [], ids, None
        with torch.no_grad():
            for _ in range(N_TOKENS):
                result = model(step, past_key_values=cache, use_cache=True)
                cache, logits = result.past_key_values, result.logits[0, -1]
                best = logits.topk(2).values
                margins.append(float(best[0] - best[1]))
                token = int(logits.argmax())
                if token == tokenizer.eos_token_id:
                    break
                output.append(token)
                step = torch.tensor([[token]])
        print(prompt, "-> smallest margin", min(margins), file=sys.stderr)
        cases.append(dict(prompt=prompt, prompt_ids=ids[0].tolist(), output_ids=output,
                          text=tokenizer.decode(output, skip_special_tokens=True),
                          smallest_margin=round(min(margins), 4)))
    target = pathlib.Path(__file__).resolve().parent / "greedy.json"
    target.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
