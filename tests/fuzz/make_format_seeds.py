"""Writes the seeds of fuzz_json, fuzz_gguf, fuzz_model, fuzz_adapter and fuzz_safetensors; standard
library only."""
import pathlib
import struct

SEEDS = pathlib.Path(__file__).parent / "seeds"


def save(fuzzer, name, data):
    folder = SEEDS / fuzzer
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def text(value):
    return struct.pack("<Q", len(value)) + value


def gguf(pairs, tensors, data_bytes, alignment=32, version=3):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, type_number, value in pairs:
        out += text(key) + struct.pack("<I", type_number) + value
    for name, dims, type_number, offset in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", type_number, offset)
    return out + bytes(-len(out) % alignment) + bytes(range(256))[:data_bytes]


def array(type_number, count, elements):
    return struct.pack("<IQ", type_number, count) + elements


ALL_TYPES = [
    (b"u8", 0, b"\x01"),
    (b"i8", 1, b"\xff"),
    (b"u16", 2, struct.pack("<H", 3)),
    (b"i16", 3, struct.pack("<h", -3)),
    (b"u32", 4, struct.pack("<I", 4)),
    (b"i32", 5, struct.pack("<i", -4)),
    (b"f32", 6, struct.pack("<f", 0.5)),
    (b"bool", 7, b"\x01"),
    (b"string", 8, text(b"llama")),
    (b"u64", 10, struct.pack("<Q", 1 << 40)),
    (b"i64", 11, struct.pack("<q", -1)),
    (b"f64", 12, struct.pack("<d", 1e300)),
    (b"words", 9, array(8, 2, text(b"a") + text(b"bc"))),
    (b"ints", 9, array(5, 3, struct.pack("<3i", 1, 2, 3))),
]
save("gguf", "metadata", gguf(ALL_TYPES, [], 0))
save("gguf", "tensors", gguf([], [(b"f", (4, 2), 0, 0), (b"q", (32, 2), 8, 32)], 32 + 68))
save("gguf", "alignment", gguf([(b"general.alignment", 4, struct.pack("<I", 8))],
                               [(b"h", (3, 1, 2), 1, 0), (b"b", (1,), 24, 16)], 17, alignment=8))
save("gguf", "version2", gguf([(b"k", 4, bytes(4))], [(b"w", (8,), 0, 0)], 32, version=2))
save("gguf", "split", gguf([(b"split.no", 2, bytes(2)), (b"split.count", 2, b"\x02\x00")], [], 0))


def safetensors(header, data_bytes):
    return struct.pack("<Q", len(header)) + header + bytes(range(256))[:data_bytes]


def entry(name, dtype, shape, begin, end):
    return b'"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (
        name, dtype, str(list(shape)).replace(" ", "").encode(), begin, end)


save("safetensors", "empty", safetensors(b"{}", 0))
save("safetensors", "two", safetensors(
    b"{" + entry(b"a", b"F32", (2, 2), 0, 16) + b"," + entry(b"b", b"BF16", (3,), 16, 22) + b"}  ", 22))
save("safetensors", "metadata", safetensors(
    b'{"__metadata__":{"format":"pt"},' + entry(b"s", b"I64", (), 0, 8) + b"}", 8))
save("safetensors", "fp8", safetensors(b"{" + entry(b"w", b"F8_E4M3", (1, 4, 1, 2), 0, 8) + b"}", 8))

save("json", "object", b'{"a": 1, "b": [true, false, null], "c": {"d": "x\\n\\u00e9\\ud83d\\ude00"}}')
save("json", "numbers", b"[0, -0, 1e10, -2.5E-3, 9007199254740993, 1e308]")
save("json", "nested", b'[[[[{"a":[{}]}]]]]')
save("json", "unicode", '{"h\u00e9": "\u65e5\u672c \U0001f600", "h\\u00e9": 1}'.encode())
save("json", "mark", b"\xef\xbb\xbf  {}\n")
save("json", "types", b'{"a": 5, "b": true, "c": "s", "d": [], "e": {}, "f": NaN}')


def small_llama():
    """One layer of hidden size 8 in f32, with a vocabulary of 4."""
    def number(value):
        return struct.pack("<I", value)

    pairs = [(b"general.architecture", 8, text(b"llama"))]
    for key, value in (("block_count", 1), ("embedding_length", 8), ("feed_forward_length", 16),
                       ("context_length", 64), ("vocab_size", 4), ("rope.dimension_count", 4),
                       ("attention.head_count", 2), ("attention.head_count_kv", 1)):
        pairs.append((b"llama." + key.encode(), 4, number(value)))
    pairs.append((b"llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)))
    tensors, offset = [], 0
    for name, dims in (("token_embd", (8, 4)), ("output", (8, 4)), ("output_norm", (8,)),
                       ("blk.0.attn_norm", (8,)), ("blk.0.ffn_norm", (8,)),
                       ("blk.0.attn_q", (8, 8)), ("blk.0.attn_k", (8, 4)), ("blk.0.attn_v", (8, 4)),
                       ("blk.0.attn_output", (8, 8)), ("blk.0.ffn_gate", (8, 16)),
                       ("blk.0.ffn_up", (8, 16)), ("blk.0.ffn_down", (16, 8))):
        tensors.append((name.encode() + b".weight", dims, 0, offset))
        size = 4 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        offset += size + -size % 32
    return gguf(pairs, tensors, 0) + bytes(offset)


save("model", "llama.gguf", small_llama())


def small_adapters():
    """Of that model: rank 2 for q and down as GGUF, for k as a PEFT folder."""
    pairs = [(b"general.type", 8, text(b"adapter")), (b"general.architecture", 8, text(b"llama")),
             (b"adapter.type", 8, text(b"lora")),
             (b"adapter.lora.alpha", 6, struct.pack("<f", 4))]
    tensors, offset = [], 0
    for name, dims in (("attn_q.weight.lora_a", (8, 2)), ("attn_q.weight.lora_b", (2, 8)),
                       ("ffn_down.weight.lora_a", (16, 2)), ("ffn_down.weight.lora_b", (2, 8))):
        tensors.append((b"blk.0." + name.encode(), dims, 0, offset))
        offset += 4 * dims[0] * dims[1]
    save("adapter", "lora.gguf", gguf(pairs, tensors, 0) + struct.pack("<f", 0.5) * (offset // 4))
    config = (b'{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_rslora": true, "bias": "none", '
              b'"target_modules": ["k_proj"]}')
    prefix = b"base_model.model.model.layers.0.self_attn.k_proj.lora_"
    header = b"{%s,%s}" % (entry(prefix + b"A.weight", b"F32", [2, 8], 0, 64),
                           entry(prefix + b"B.weight", b"F16", [4, 2], 64, 80))
    save("adapter", "folder", config + b"\0" + safetensors(header, 80))


small_adapters()
