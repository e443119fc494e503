"""Writes the seeds of fuzz_trace; standard library only. The format is in engine/trace.h."""
import pathlib
import struct

SEEDS = pathlib.Path(__file__).parent / "seeds" / "trace"


def record(kind, body):
    body += bytes(-len(body) % 8)
    return struct.pack("<IIQ", kind, 0, len(body)) + body


def model(tokens):
    return record(1, struct.pack("<128s128sQiiii", b"tiny", b"cpu", 1, 2, 10, len(tokens), 0) +
                  struct.pack(f"<{len(tokens)}i", *tokens))


def step(first, count):
    return record(2, struct.pack("<ii", first, count))


def value(name, rows, columns, layer=0):
    return record(3, struct.pack("<64s64s32sqqiid", name, b"kernel", b"op", rows, columns, layer, 0,
                                 0.5) + struct.pack("<f", 1.5) * (rows * columns))


def output(tokens):
    return record(4, struct.pack("<ii", len(tokens), 0) +
                  b"".join(struct.pack("<if", token, 0.25) for token in tokens))


def trace(*records):
    return (b"ISOTRACE" + struct.pack("<II", 1, 0) + b"".join(records) +
            record(5, struct.pack("<Q", len(records))))


WHOLE = trace(model([1, 2, 3]), step(0, 2), value(b"a", 2, 3), value(b"b", 1, 1), step(2, 1),
              value(b"a", 1, 3, -1), output([4, 5]))

if __name__ == "__main__":
    SEEDS.mkdir(parents=True, exist_ok=True)
    (SEEDS / "whole").write_bytes(WHOLE)
    (SEEDS / "least").write_bytes(trace(model([1]), step(0, 1)))
    (SEEDS / "cut").write_bytes(WHOLE[:-30])
    (SEEDS / "gap").write_bytes(trace(model([1, 2, 3]), step(0, 1), step(2, 1)))
