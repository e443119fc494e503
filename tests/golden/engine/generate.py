#!/usr/bin/env python3
"""Makes beams.json: what Hugging Face transformers' beam search finds on the tiny llama of
tests/golden/models, for tests/unit/test_engine_beam.c. Needs torch and transformers."""
import json
import pathlib

import torch
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
model = LlamaForCausalLM.from_pretrained(HERE.parent / "models" / "llama",
                                         dtype=torch.float32).eval()
generator = torch.Generator().manual_seed(1)
cases = []
for index in range(24):
    prompt = torch.randint(3, 160, (1, 4 + index), generator=generator)
    width = [2, 3, 4, 5][index % 4]
    case = dict(beam_width=width, n=[1, width][index % 2], max_tokens=[6, 12, 20][index % 3],
                length_penalty=[1.0, 0.5, 2.0, 1.5][index // 2 % 4], early_stopping=index % 5 < 2)
    # A token that greedy search meets soon, so that beams end at different lengths.
    greedy = model.generate(prompt, max_new_tokens=6, do_sample=False, eos_token_id=-1,
                            pad_token_id=0)[0, prompt.shape[1]:].tolist()
    end = greedy[index % 6]
    found = model.generate(prompt, num_beams=width, num_return_sequences=case["n"], do_sample=False,
                           max_new_tokens=case["max_tokens"], length_penalty=case["length_penalty"],
                           early_stopping=case["early_stopping"], eos_token_id=end, pad_token_id=0,
                           return_dict_in_generate=True, output_scores=True)
    answers = []
    for row, score in zip(found.sequences, found.sequences_scores):
        tokens = row[prompt.shape[1]:].tolist()
        ended = end in tokens
        if ended:
            tokens = tokens[:tokens.index(end)]
        answers.append(dict(tokens=tokens, ended=ended, score=float(score)))
    cases.append(dict(case, prompt=prompt[0].tolist(), end=end, answers=answers))
(HERE / "beams.json").write_text(json.dumps(cases) + "\n")
print(sum(a["ended"] for c in cases for a in c["answers"]), "of",
      sum(len(c["answers"]) for c in cases), "answers ended")
