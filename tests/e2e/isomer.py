"""What end-to-end tests share: the command under test, and how to say that a test cannot run.

A test is a unittest file that ends in `isomer.main()`. It is run as `python3 test_x.py BINARY`, or
with the binary's path in ISOMER_BIN.
"""
import importlib.util
import json
import os
import subprocess
import sys
import unittest

# A test program's exit code for "cannot run here"; ctest counts it apart.
SKIPPED = 77

if len(sys.argv) > 1 and os.access(sys.argv[1], os.X_OK):
    BINARY = os.path.abspath(sys.argv.pop(1))
else:
    BINARY = os.environ.get("ISOMER_BIN", "")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.path.join(SOURCE, "tests", "golden", "models")


def run(*arguments, code=0, **options):
    """Runs the command and returns the finished process, whose exit code must be `code`."""
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True,
                          errors="replace", timeout=600, **options)
    if done.returncode != code:
        raise AssertionError(f"isomer {' '.join(map(str, arguments))} exited with "
                             f"{done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done


def run_json(*arguments):
    """Runs the command with --json and returns what it printed."""
    return json.loads(run(*arguments, "--json").stdout)


def golden_models():
    """The name and the path of each small model, a folder or a GGUF file, that has golden vectors."""
    for name in sorted(os.listdir(MODELS)):
        path = os.path.join(MODELS, name)
        if name.endswith("-gguf"):
            yield name, os.path.join(path, "model.gguf")
        elif os.path.isdir(path) and not name.startswith("__"):
            yield name, path


def need_model(variable):
    """Path of a real model; ends the test program as skipped when there is none."""
    path = os.environ.get(variable)
    if not path:
        print(f"SKIPPED: {variable} is not set; scripts/test sets it")
        sys.exit(SKIPPED)
    return path


def need_packages(*names):
    """Goes on in the Python that has these packages, or ends the test program as skipped."""
    if all(importlib.util.find_spec(name) for name in names):
        return
    python = os.environ.get("ISOMER_TEST_PYTHON")
    if not python or sys.prefix != sys.base_prefix:
        print(f"SKIPPED: no {', '.join(names)}; scripts/test sets ISOMER_TEST_PYTHON to a Python that has them")
        sys.exit(SKIPPED)
    os.execv(python, [python, sys.argv[0], BINARY, *sys.argv[1:]])


def main():
    if not BINARY:
        sys.exit("no binary to test: give its path as the first argument or in ISOMER_BIN")
    unittest.main(verbosity=2)
