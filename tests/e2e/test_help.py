#!/usr/bin/env python3
"""Help, man pages and exit codes of every subcommand.   test_help.py PATH_TO_ISOMER"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

ISOMER = sys.argv[1]
TABLE = pathlib.Path(__file__).resolve().parent.parent.parent / "tools/commands.def"
ROWS = re.findall(r'^ISO_COMMAND\((\w+), \w+, "(.*?)",', TABLE.read_text(), re.M)
OPTIONS = re.findall(r"^ISO_OPTION\(\w+, \w+, [^,]+, \"([\w-]+)\", (?:NULL|\"([\w-]+)\"),",
                     (TABLE.parent / "options.def").read_text(), re.M)
ALIASES = {option: {alias for name, alias in OPTIONS if name == option} for option, _ in OPTIONS}
COMMANDS = [name for name, _ in ROWS]


def run(*arguments):
    return subprocess.run([ISOMER, *arguments], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def main():
    assert len(COMMANDS) >= 10
    whole = run("--help")
    assert whole.returncode == 0 and not whole.stderr
    assert run().returncode == 2
    assert run("--version").stdout.startswith("isomer ")
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", whole.stdout, re.M), command
        done = run(command, "--help")
        assert done.returncode == 0 and f"isomer {command}" in done.stdout, (command, done)
        assert max(map(len, done.stdout.splitlines())) <= 100, command
        pages = ["".join(page.replace("\\-", "-").split()) for page in (done.stdout, run("help", "--man", command).stdout)]
        for option in re.findall(r"^  (?:-\w, |    )--([\w-]+)", done.stdout, re.M):
            (alias,) = ALIASES[option]
            for page in pages:
                assert f"--{option}" in page and (not alias or f";also--{alias}" in page), (command, option)
        done = run(command, "--no-such-option")
        assert done.returncode == 2 and done.stderr.count("\n") == 1, (command, done)
    for command, words in ROWS:
        if "..." in words:
            continue
        given = [f"absent-{i}" for i in range(len(words.split()))]
        done = run(command, *given, "extra")
        assert done.returncode == 2 and '"extra" is a word too many' in done.stderr, (command, done)
        if words.startswith("[MODEL]"):
            done = run(command, "-m", "absent", *given)
            assert done.returncode == 2 and "a word too many" in done.stderr, (command, done)
    for arguments in ([command, *given, "--json"] for command in COMMANDS
                      for given in (["--no-such-option"], ["-m", "absent", "-o"], ["absent", "--device", "absent"])):
        done = run(*arguments)
        assert done.returncode in (1, 2), (arguments, done)
        assert json.loads(done.stdout)["error"] in done.stderr, (arguments, done)
    pages = [("help", "--man")] + [("help", "--man", command) for command in COMMANDS]
    for page in pages:  # or --context ends up as --con and text
        assert ".nh" in run(*page).stdout.splitlines(), page
    if not shutil.which("mandoc"):
        print("man pages not checked: mandoc is not installed")
        return
    for page in pages:
        text = run(*page).stdout
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=text, capture_output=True, text=True)
        problems = [line for line in lint.stdout.splitlines() if "missing date" not in line]
        assert not problems, (page, problems)


main()
