#!/usr/bin/env python3
"""Libraries export Isomer's names alone, plug-ins their entry.   test_exports.py PATH_TO_ISOMER"""
import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(sys.argv[1]).resolve().parent


def exports(library):
    done = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True,
                          capture_output=True, text=True)
    return {line.split()[0].split("@")[0] for line in done.stdout.splitlines()}


def main():
    if not shutil.which("nm"):
        print("skipped: nm is not installed")
        sys.exit(77)
    names = exports(FOLDER / "libisomer.so")
    assert "iso_model_open" in names
    assert all(name.startswith("iso_") for name in names), sorted(names)
    for plugin in sorted(FOLDER.glob("libisomer-*.so")):
        names = exports(plugin)
        assert names == {"iso_backend_query"}, (plugin.name, len(names), sorted(names)[:20])
        print(f"{plugin.name}: its entry")


main()
