"""The CUDA plug-in loads everywhere and says in one line why there is no device."""
import ctypes
import os
import subprocess
import sys

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
