#!/usr/bin/env python3
"""The installed package as strangers use it: an application through find_package and pkg-config,
and a backend built out of tree from a copy of backends/host.   test_install.py PATH_TO_ISOMER"""
import os
import pathlib
import subprocess
import sys
import tempfile

ISOMER = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = SOURCE / "tests/golden/models/qwen3"
if "-fsanitize" in (ISOMER.parent / "build.ninja").read_text():
    print("skipped: a sanitized library does not load into a plain application")
    sys.exit(77)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(source, target, prefix, *options):
    run("cmake", "-G", "Ninja", "-S", source, "-B", target, f"-DCMAKE_PREFIX_PATH={prefix}", *options)
    run("cmake", "--build", target)


def check_headers(prefix, work):
    """Every public header compiles alone, as C11 and as C++17."""
    for header in sorted((prefix / "include/isomer").glob("*.h")):
        for compiler, language, standard in (("cc", "c", "c11"), ("c++", "c++", "c++17")):
            unit = work / "unit.c"
            unit.write_text(f"#include <isomer/{header.name}>\n")
            run(compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic",
                "-I", prefix / "include", "-fsyntax-only", unit)


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        prefix = work / "prefix"
        run("cmake", "--install", ISOMER.parent, "--prefix", prefix)
        library = next(prefix.glob("lib*/**/libisomer.so")).parent
        check_headers(prefix, work)

        listed = run(prefix / "bin/isomer", "devices")
        for plugin in (library / "isomer").glob("libisomer-*.so"):
            assert plugin.stem.removeprefix("libisomer-") in listed, (plugin, listed)
            print(f"{plugin.name}: found")

        build(SOURCE / "tests/install/consumer", work / "consumer", prefix)
        consumer = work / "consumer/consumer"
        expected = run(consumer, MODEL, "host")
        assert len(expected.split()) == 8, expected
        print("find_package: ok")

        run(ISOMER, "synth", "tiny-llama", work / "tiny.gguf", "--scheme", "q8_0")
        answers = run(work / "consumer/engine", work / "tiny.gguf", input="one\ntwo\none\n").split("\n0: ")[-1]
        assert all(f"{i}: " in "\n0: " + answers for i in range(3)), answers
        print("engine example: ok")

        flags = run("pkg-config", "--cflags", "--libs", "isomer",
                    env=dict(os.environ, PKG_CONFIG_PATH=str(library / "pkgconfig"))).split()
        run("cc", SOURCE / "tests/install/consumer/main.c", "-o", work / "plain", *flags)
        assert run(work / "plain", MODEL, "host", env=dict(os.environ, LD_LIBRARY_PATH=str(library))) == expected
        print("pkg-config: ok")

        # The commands of docs/porting.md, up to the one that sets the path.
        guide = (SOURCE / "docs/porting.md").read_text()
        commands = guide.split("```\n")[1].split("export ")[0].splitlines()
        assert len(commands) == 3, commands
        (work / "backends").symlink_to(SOURCE / "backends")
        for command in commands:
            run(*command.split(), cwd=work, env=dict(os.environ, CMAKE_PREFIX_PATH=str(prefix)))
        environment = dict(os.environ, ISOMER_BACKEND_PATH=str(work / "build-acme"), LD_LIBRARY_PATH=str(library))
        assert "acme:0" in run(ISOMER, "devices", env=environment)
        assert run(consumer, MODEL, "acme", env=environment) == expected
        print("out-of-tree backend: ok")


main()
