#!/usr/bin/env python3
"""Trains small tokenizers with Hugging Face tokenizers and sentencepiece, and records the ids that
they give. Needs the Python packages tokenizers and sentencepiece. Rewrites the folders beside it:
all, or those named. Training breaks ties at random, so a rerun may change a vocabulary, and with it
the ids, but not that both agree."""

import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import sentencepiece as spm
import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

import corpus

HERE = Path(__file__).resolve().parent
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
             r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA = ["<unk>", "<s>", "</s>"]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert)


def bytes_only(prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)


def template(bos=None, eos=None, ids=None):
    single = " ".join(([bos] if bos else []) + ["$A"] + ([eos] if eos else []))
    return processors.TemplateProcessing(single=single, pair=single + " $B", special_tokens=ids)


def byte_bpe(pre, special, vocab=600, norm=None, post=None, **model):
    tok = Tokenizer(models.BPE(**model))
    if norm:
        tok.normalizer = norm
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus.lines(), trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if post:
        tok.post_processor = post(tok)
    return tok


def gpt2():
    return byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])


def gpt2_prefix():
    tok = byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "</s>", "<pad>"], vocab=500,
                   post=lambda t: processors.RobertaProcessing(("</s>", 1), ("<s>", 0)))
    tok.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    tok.add_tokens([AddedToken("word", single_word=True), AddedToken("today", rstrip=True)])
    return tok


def llama3():
    def post(tok):
        bos = tok.token_to_id("<|begin_of_text|>")
        return processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                    template("<|begin_of_text|>", ids=[("<|begin_of_text|>", bos)])])
    return byte_bpe(pre_tokenizers.Sequence([split(LLAMA3), bytes_only()]),
                    ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], vocab=900, post=post, ignore_merges=True)


def qwen2():
    return byte_bpe(pre_tokenizers.Sequence([split(QWEN2), bytes_only()]), CHATML, norm=normalizers.NFC())


def smollm():
    return byte_bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                             pre_tokenizers.ByteLevel(add_prefix_space=False)]), CHATML)


def gpt4o():
    return byte_bpe(pre_tokenizers.Sequence([split(GPT4O), bytes_only()]), ["<|endoftext|>"], vocab=700)


def deepseek3():
    return byte_bpe(pre_tokenizers.Sequence([split(p) for p in DEEPSEEK3] + [bytes_only()]), ["<|endoftext|>"],
                    norm=normalizers.Sequence([]))


def splits():
    """Every behaviour of Split, and the small pre-tokenizers."""
    pre = pre_tokenizers.Sequence([
        split(r"\n", "merged_with_previous"), split(r" ", "merged_with_next"), split(r"[0-9]", "contiguous"),
        pre_tokenizers.Punctuation("isolated"), split(r"\w+|\s+|\W", "isolated", invert=True),
        pre_tokenizers.Split(".", "removed"), pre_tokenizers.CharDelimiterSplit("-"), bytes_only()])
    return byte_bpe(pre, ["<|endoftext|>"], vocab=450)


def whitespace():
    """Words only, with an unknown token, lower case and no accents."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(),
                                           normalizers.Strip()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    tok.decoder = decoders.Fuse()
    tok.train_from_iterator(corpus.lines(), trainers.BpeTrainer(vocab_size=420, special_tokens=["<unk>", "<pad>"],
                                                                show_progress=False, limit_alphabet=200))
    return tok


def bert_words():
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.NFKC()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.Fuse()
    tok.train_from_iterator(corpus.lines(), trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"],
                                                                show_progress=False, limit_alphabet=120))
    return tok


def byte_fallback_vocab(tok, special):
    """Gives a trained BPE the 256 byte tokens that Llama and Gemma have."""
    state = json.loads(tok.to_str())
    vocab = {}
    for text in special + [f"<0x{i:02X}>" for i in range(256)]:
        vocab[text] = len(vocab)
    for text in state["model"]["vocab"]:
        vocab.setdefault(text, len(vocab))
    state["model"]["vocab"] = vocab
    state["model"]["byte_fallback"] = True
    for added in state["added_tokens"]:
        added["id"] = vocab[added["content"]]
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))


def spaced_bpe(normalizer, pre, special, decoder, vocab=900, limit_alphabet=180):
    """BPE over U+2581 text without byte level, as SentencePiece models come out of conversion."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = split("▁", "merged_with_next")
    tok.train_from_iterator(corpus.lines(), trainers.BpeTrainer(vocab_size=vocab, special_tokens=special,
                                                                show_progress=False, limit_alphabet=limit_alphabet))
    tok.normalizer = normalizer
    if pre:
        tok.pre_tokenizer = pre
    state = json.loads(tok.to_str())
    if not pre:
        state["pre_tokenizer"] = None
    tok = byte_fallback_vocab(Tokenizer.from_str(json.dumps(state)), special)
    tok.decoder = decoder
    return tok


def llama_decoder(strip=True):
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if strip else []))


def llama2():
    tok = spaced_bpe(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, LLAMA,
                     llama_decoder())
    tok.post_processor = template("<s>", ids=[("<s>", 1)])
    return tok


def llama2_first():
    """Llama 2 as it is written now: Metaspace, prepended only at the start."""
    tok = spaced_bpe(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), LLAMA, llama_decoder())
    tok.post_processor = template("<s>", "</s>", ids=[("<s>", 1), ("</s>", 2)])
    return tok


def gemma():
    tok = spaced_bpe(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                     ["<pad>", "<eos>", "<bos>", "<unk>"], llama_decoder(strip=False))
    tok.add_tokens([AddedToken(text, normalized=False) for text in ["\n", "\n\n", "▁▁", "▁▁▁", "<start_of_image>"]])
    tok.add_special_tokens(["<start_of_turn>", "<end_of_turn>"])
    tok.post_processor = template("<bos>", ids=[("<bos>", tok.token_to_id("<bos>"))])
    return tok


def pairs():
    """What older files look like: merges as texts, normalized added tokens, no model type."""
    tok = gpt2()
    tok.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex(r"\d+"), "#")])
    tok.add_tokens([AddedToken("some", normalized=True), AddedToken("world", normalized=True, single_word=True)])
    state = json.loads(tok.to_str())
    state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
    del state["model"]["type"]
    return Tokenizer.from_str(json.dumps(state))


def unigram(normalizer, pre, decoder, byte_fallback=False, vocab=700):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.train_from_iterator(corpus.lines(), trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    if byte_fallback:
        state = json.loads(tok.to_str())
        state["model"]["vocab"] += [[f"<0x{i:02X}>", 0.0] for i in range(256)]
        state["model"]["byte_fallback"] = True
        tok = Tokenizer.from_str(json.dumps(state))
    tok.decoder = decoder
    return tok


def charsmap(**rules):
    """SentencePiece's compiled form of normalization rules."""
    return spm_proto(train_spm("charsmap", model_type="char", **rules)).normalizer_spec.precompiled_charsmap


def t5():
    tok = unigram(normalizers.Sequence([normalizers.Precompiled(charsmap(normalization_rule_tsv=RULES)),
                                        normalizers.Strip(left=False, right=True),
                                        normalizers.Replace(Regex(" {2,}"), "▁")]),
                  pre_tokenizers.Metaspace(), decoders.Metaspace())
    tok.post_processor = template(None, "</s>", ids=[("</s>", 1)])
    return tok


def unigram_bytes():
    return unigram(normalizers.NFKD(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                                 pre_tokenizers.Metaspace(prepend_scheme="always")]),
                   decoders.Metaspace(), byte_fallback=True, vocab=500)


def spm_proto(data):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(data)
    return proto


def train_spm(name, **options):
    out = io.BytesIO()
    if "normalization_rule_tsv" in options:
        rules = options["normalization_rule_tsv"].items()
        os.chdir(tempfile.mkdtemp())  # the model file keeps the name as it is given
        with open("rules.tsv", "w") as file:
            file.writelines("\t".join(" ".join(f"{ord(c):X}" for c in side) for side in rule) + "\n" for rule in rules)
        options = {**options, "normalization_rule_tsv": "rules.tsv"}
    defaults = dict(vocab_size=600, character_coverage=0.98, num_threads=1, minloglevel=2, hard_vocab_limit=False,
                    input_sentence_size=0)
    spm.SentencePieceTrainer.train(sentence_iterator=corpus.lines(), model_writer=out, **{**defaults, **options})
    return out.getvalue()


# Rules of our own, prefixes of one another among them: from, to, as lists of code points.
RULES = {"ﬁ": "fi", "ﬂ": "fl", "Ａ": "A", "\u3000": " ", "\u00a0": " ", "\t": " ", "\n": " ", "\r": " ", "\r\n": " ",
         "e\u0301": "é", "e\u0301\u0301": "É", "½": "1/2", "…": "...", "\u200b": "", "A\u030a": "Å", "H": "h",
         "HE": "he!", "HEL": "hel", "\u0007": "", "①": "1", "ß": "ss"}
SENTENCEPIECE = {
    "spm_bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                    remove_extra_whitespaces=False, split_digits=True),
    "spm_bpe_unk": dict(model_type="bpe", control_symbols=["<ctrl>"], normalization_rule_tsv=RULES),
    "spm_gemma": dict(model_type="bpe", byte_fallback=True, add_dummy_prefix=False, normalization_rule_name="identity",
                      remove_extra_whitespaces=False, bos_id=2, eos_id=1, unk_id=3, pad_id=0,
                      user_defined_symbols=["\n", "\n\n", "▁▁", "▁▁▁", "<start_of_turn>", "[MASK]"]),
    "spm_unigram": dict(model_type="unigram", normalization_rule_name="nmt_nfkc"),
    "spm_unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_tsv=RULES,
                              add_dummy_prefix=False, user_defined_symbols=["[MASK]", "word", "Hello"]),
}
HUGGING_FACE = [gpt2, gpt2_prefix, llama3, qwen2, smollm, gpt4o, deepseek3, splits, whitespace, bert_words, llama2,
                llama2_first, gemma, pairs, t5, unigram_bytes]


# What tokenizer.ggml.pre names stand for: the names, the normalizer, and the chain of splits. The
# first six are as Hugging Face transformers has them (its GGUF mapping and tokenizer classes), the
# others as in a model's published tokenizer.json.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEKKEN = GPT4O.replace(CONTRACTIONS + "?", "").replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
DIGITS = pre_tokenizers.Digits(individual_digits=True)
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
GGUF_PIPELINES = [
    ("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe glm4 chatglm-bpe", None,
     [split(LLAMA3)]),
    ("tekken", None, [split(TEKKEN)]),
    ("qwen2 deepseek-r1-qwen", normalizers.NFC(), [split(QWEN2)]),
    ("qwen35", normalizers.NFC(), [split(QWEN35)]),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", None, [split(GPT4O)]),
    ("command-r", normalizers.NFC(), [DIGITS, split(GPT2)]),
    ("gpt-2 phi-2", None, [split(GPT2)]),
    ("olmo mpt", normalizers.NFC(), [split(GPT2)]),
    ("smollm starcoder refact", None, [DIGITS, split(GPT2)]),
    ("stablelm2", None, [split(QWEN2)]),
    ("deepseek-v3", None, [split(p) for p in DEEPSEEK3]),
    ("deepseek-coder", None, [split(p) for p in [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK]] + [DIGITS]),
    ("bloom", None, [split(r" ?[^(\s|[.,!?…。，、।۔،])]+")]),
    ("falcon", None, [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                      pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]),
    ("default", None, [split(p) for p in [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]]),
]


def unsplit():
    """A vocabulary trained without any split, so that its tokens run across all boundaries and ids
    show where text is split; and the ids that it gives after each pipeline of GGUF_PIPELINES."""
    tok = byte_bpe(bytes_only(), ["<|endoftext|>"], vocab=1500)
    state = json.loads(tok.to_str())
    rows = []
    for names, normalizer, steps in GGUF_PIPELINES:
        tok = Tokenizer.from_str(json.dumps(state))
        if normalizer:
            tok.normalizer = normalizer
        tail = [] if names == "falcon" else [bytes_only()]
        tok.pre_tokenizer = pre_tokenizers.Sequence(steps + tail)
        tok.model.ignore_merges = names.startswith(("llama3", "tekken"))
        tok.encode_special_tokens = True
        rows.append(dict(names=names.split(), plain=[tok.encode(text).ids for text in texts()]))
    return state, rows


def record_unsplit():
    state, rows = unsplit()
    write(HERE / "unsplit", "tokenizer.json", json.dumps(state, ensure_ascii=False, separators=(",", ":")))
    body = ",\n".join('{"names":' + json.dumps(row["names"]) + ',"plain":[\n' +
                      ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in row["plain"]) + "]}" for row in rows)
    write(HERE / "unsplit", "pretokenizers.json", "[\n" + body + "]\n")


def texts():
    return [text.replace("\ue000", "\0") for text in corpus.TEXTS]


def write(folder, name, data):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def decoded(rows, decode):
    """What ids decode to; None where it is the text that they came from."""
    return [None if decode(ids) == text else decode(ids) for ids, text in zip(rows, texts())]


def without_special_pieces(tok):
    """The same Unigram model, without the special tokens among its pieces: Hugging Face finds them
    even where special tokens are not to be parsed."""
    state = json.loads(tok.to_str())
    special = {token["content"] for token in state["added_tokens"]}
    for piece in state["model"]["vocab"]:
        if piece[0] in special:
            piece[0] = "\U0010fffe" + piece[0]
    state["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(state))


def record_hugging_face(make):
    tok = make()
    folder = HERE / make.__name__
    write(folder, "tokenizer.json", json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":")))
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    parsed = [tok.encode(text).ids for text in texts()]
    tok.encode_special_tokens = True
    plain = [tok.encode(text, add_special_tokens=False).ids for text in texts()]
    if isinstance(tok.model, models.Unigram):
        plain = [without_special_pieces(tok).encode(text, add_special_tokens=False).ids for text in texts()]
    around = tok.encode("a").ids
    inside = tok.encode("a", add_special_tokens=False).ids
    at = next(i for i in range(len(around)) if around[i:i + len(inside)] == inside)
    prefix, suffix = around[:at], around[at + len(inside):]
    # Isomer's rule: one BOS.
    parsed = [row[1:] if prefix and row[:2] == prefix[:1] * 2 else row for row in parsed]
    parsed = [None if row == prefix + ids + suffix else row for row, ids in zip(parsed, plain)]
    return dict(oracle=f"tokenizers {tokenizers.__version__}", prefix=prefix, suffix=suffix, plain=plain,
                parsed=parsed, decoded=decoded(plain, lambda ids: tok.decode(ids, skip_special_tokens=True)))


def record_sentencepiece(name, options):
    data = train_spm(name, **options)
    write(HERE / name, "tokenizer.model", data)
    processor = spm.SentencePieceProcessor(model_proto=data)
    plain = [processor.encode(text) for text in texts()]
    return dict(oracle=f"sentencepiece {spm.__version__}", plain=plain,
                decoded=decoded(plain, processor.decode))


def dump(folder, expected):
    lists = {key: value for key, value in expected.items() if key in ("plain", "parsed", "decoded")}
    head = {key: value for key, value in expected.items() if key not in lists}
    body = json.dumps(head, ensure_ascii=False)[:-1]
    for key, rows in lists.items():
        rows = ",\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False).replace("\\u0000", "\ue000")
                          for row in rows)
        body += f',\n"{key}": [\n{rows}]'
    write(folder, "expected.json", body + "}\n")


def main():
    wanted = sys.argv[1:]
    jobs = [(make.__name__, lambda make=make: record_hugging_face(make)) for make in HUGGING_FACE]
    jobs += [(name, lambda name=name, o=o: record_sentencepiece(name, o)) for name, o in SENTENCEPIECE.items()]
    for name, job in jobs:
        if wanted and name not in wanted:
            continue
        if (HERE / name).exists():
            shutil.rmtree(HERE / name)
        dump(HERE / name, job())
        print(name)
    if not wanted or "unsplit" in wanted:
        record_unsplit()
    write(HERE, "texts.json", "[\n" + ",\n".join(json.dumps(t, ensure_ascii=False) for t in corpus.TEXTS) + "]\n")


if __name__ == "__main__":
    main()
