"""The CUDA plug-in loads everywhere and says in one line why there is no device. Where there is one,
sequences beside each other get from it what each gets alone."""
import ctypes
import os
import subprocess
import sys
import tempfile

tool = sys.argv[1]
library = os.path.join(os.path.dirname(tool), "libisomer-cuda.so")
if not os.path.exists(library):
    print("skipped: libisomer-cuda.so was not built (no nvcc)")
    sys.exit(77)


def run(*arguments):
    return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=120)


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


listing = run("devices", "--backend", library)
assert listing.returncode == 0, listing.stderr
rows = [line for line in listing.stdout.splitlines() if line.startswith("cuda")]
assert rows, listing.stdout
print(rows[0])
if not has_driver():
    assert rows == ["cuda       none: no NVIDIA driver (libcuda.so.1)"], rows
if "none:" in rows[0]:
    asked = run("conform", "--backend", library, "--device", "cuda:0")
    reason = rows[0].split("none: ")[1]
    assert asked.returncode != 0 and reason in asked.stderr, (asked.returncode, asked.stderr)
    assert len(asked.stderr.strip().splitlines()) == 1, asked.stderr
else:
    os.environ["ISOMER_BACKEND_PATH"] = os.path.dirname(library)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        for scheme, cache in (("q4_0", "bf16"), ("q4_0", "q8_0"), ("q6_k", "bf16"), ("bf16", "bf16")):
            assert run("synth", "tiny-llama", model, "--scheme", scheme).returncode == 0
            done = run("verify", model, "--devices", "cuda:0", "--kv-type", cache, "--sequences", "24")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "beside each other: 24 sequences" in done.stdout, done.stdout
