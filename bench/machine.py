"""The machine that a report is about."""
import os
import platform
import re

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16",
         "amx_tile", "amx_int8", "amx_bf16", "sve", "sve2", "i8mm", "bf16")


def physical_cores():
    try:
        with open("/proc/cpuinfo") as lines:
            text = lines.read()
    except OSError:
        return os.cpu_count()
    cores = set(re.findall(r"physical id\s*: (\d+).*?core id\s*: (\d+)", text, re.S))
    return len(cores) or os.cpu_count()


def describe():
    brand, flags = platform.processor(), []
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                brand = value.strip()
            if key.strip() in ("flags", "Features"):
                flags = value.split()
    with open("/proc/meminfo") as lines:
        memory = int(next(lines).split()[1]) / 1e6
    known = [flag for flag in FLAGS if flag in flags]
    return (f"{brand}, {physical_cores()} cores ({os.cpu_count()} threads), {memory:.0f} GB, "
            f"{platform.system()} {platform.release()}; {' '.join(known)}")
