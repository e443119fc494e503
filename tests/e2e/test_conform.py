"""`isomer conform`: the table, JSON, JUnit XML, and the exit code of a wrong kernel."""
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

import isomer

BUILD = os.path.dirname(isomer.BINARY)
WRONG = os.path.join(BUILD, "wrong_plugin", "libisomer-wrong.so")
MISFIT = os.path.join(BUILD, "test_plugins", "libisomer-misfit.so")


def wrong(op):
    return dict(os.environ, ISOMER_WRONG=op)


class Conform(unittest.TestCase):
    def test_reference(self):
        found = isomer.run_json("conform", "--device", "host", "--op", "rope")
        self.assertEqual([row["op"] for row in found["ops"]], ["rope"])
        self.assertGreater(found["passed"], 10)
        self.assertEqual((found["refused"], found["failed"]), (0, 0))

    def test_every_record_runs(self):
        found = isomer.run_json("conform", "--device", "cpu", "--op", "rms_norm")
        host = isomer.run_json("conform", "--device", "host", "--op", "rms_norm")
        self.assertEqual(found["failed"], 0)
        self.assertGreaterEqual(found["passed"], host["passed"])

    def test_table(self):
        done = isomer.run("conform", "--device", "host", "--op", "argmax")
        self.assertRegex(done.stdout, r"(?m)^op +passed +refused +failed$")
        self.assertRegex(done.stdout, r"(?m)^argmax +\d+ +0 +0$")
        self.assertRegex(done.stdout, r"host \(.*\): \d+ passed, \d+ refused, 0 failed")

    def test_parts_are_the_whole(self):
        def names(*arguments):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "report.xml")
                isomer.run("conform", "--device", "host", "--op", "add", "--junit", path, *arguments)
                return [case.get("name") for case in xml.etree.ElementTree.parse(path).iter("testcase")]
        whole, parts = names(), [names("--part", f"{k}/3") for k in (1, 2, 3)]
        self.assertEqual([whole[k::3] for k in range(3)], parts)
        for wrong_part in ("0/3", "4/3", "1", "1/0", "/", "1/3x", "-1/3", "99999999999/3", "1/20000", ""):
            done = isomer.run("conform", "--device", "host", "--op", "add", "--part", wrong_part, code=2)
            self.assertIn("--part wants K/N", done.stderr)
        self.assertIn("no parts", isomer.run("conform", "--device", "host", "--part", "1/2", "glu *=3 D=8", code=2).stderr)

    def test_memory(self):
        found = isomer.run_json("conform", "--device", "host", "--op", "memory")
        self.assertEqual([row["op"] for row in found["ops"]], ["memory"])
        self.assertEqual((found["passed"] + found["refused"], found["failed"]), (2, 0))

    def test_words_that_select_nothing(self):
        case = "glu *=3 D=8"
        isomer.run("conform", "--device", "host", *case.split())
        self.assertIn("leave out --op", isomer.run("conform", "--device", "host", "--op", "add", case, code=2).stderr)
        self.assertIn("one device", isomer.run("conform", "--device", "host,cpu", code=2).stderr)
        self.assertIn("--perf", isomer.run("conform", "--device", "host", "--op", "memory", "--perf", code=2).stderr)

    def test_wrong_kernel(self):
        arguments = ["conform", "--device", "wrong", "--backend", WRONG, "--op", "glu"]
        found = json.loads(isomer.run(*arguments, "--json", code=1, env=wrong("glu")).stdout)
        self.assertGreater(found["failed"], 10)
        failure = found["ops"][0]["failures"][0]
        self.assertEqual(failure["kernel"], "glu.reference")
        self.assertRegex(failure["detail"], r"y\[.*\] is .*, wanted .* within ")
        # Its text repeats it, and only it.
        again = isomer.run(*arguments[:-2], failure["case"], "--json", code=1, env=wrong("glu"))
        again = json.loads(again.stdout)
        self.assertEqual((again["passed"], again["failed"]), (0, 1))
        self.assertEqual(again["ops"][0]["failures"][0]["detail"], failure["detail"])
        text = isomer.run(*arguments, code=1, env=wrong("glu")).stdout
        self.assertRegex(text, r"(?m)^FAILED glu .*\(seed 1\)\n  glu.reference: y")

    def test_other_ops_of_a_wrong_device_pass(self):
        isomer.run("conform", "--device", "wrong", "--backend", WRONG, "--op", "add", env=wrong("glu"))

    def test_a_library_that_is_also_found(self):
        found = dict(wrong("glu"), ISOMER_BACKEND_PATH=os.path.dirname(WRONG))
        isomer.run("conform", "--device", "wrong", "--backend", WRONG, "--op", "add", env=found)
        self.assertIn("wrong:0", isomer.run("devices", "--backend", WRONG, env=found).stdout)

    def test_seed(self):
        arguments = ["conform", "--device", "wrong", "--backend", WRONG, "add *=3 D=5"]
        details = [isomer.run(*arguments, "--seed", seed, code=1, env=wrong("add")).stdout
                   for seed in (1, 1, 2)]
        self.assertEqual(details[0], details[1])
        self.assertNotEqual(details[1], details[2])

    def test_refusals(self):
        found = isomer.run_json("conform", "--device", "misfit", "--backend", MISFIT, "--op", "glu")
        self.assertEqual((found["passed"], found["failed"]), (0, 0))
        refusals = found["ops"][0]["refusals"]
        self.assertEqual(sum(row["count"] for row in refusals), found["refused"])
        self.assertIn("no kernel", refusals[0]["reason"])

    def test_interrupted(self):
        """What was found before the end is shown, and is no success."""
        for seconds in (0.5, 2, 8, 32):  # until the signal is taken in the middle
            with subprocess.Popen([isomer.BINARY, "conform", "--device", "host"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                time.sleep(seconds)
                process.send_signal(signal.SIGINT)
                out, error = process.communicate(timeout=60)
            if process.returncode != -signal.SIGINT:
                break
        self.assertEqual(process.returncode, 1, error)
        self.assertRegex(error, r"^isomer: stopped after \d+ of \d+ cases\n$")
        self.assertRegex(out, r"host \(.*\): [1-9]\d* passed, \d+ refused, 0 failed")

    def test_junit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.xml")
            isomer.run("conform", "--device", "wrong", "--backend", WRONG, "--op", "add", "--junit",
                       path, code=1, env=wrong("add"))
            root = xml.etree.ElementTree.parse(path).getroot()
        suite = root.find("testsuite")
        self.assertEqual(suite.get("name"), "add")
        cases = suite.findall("testcase")
        self.assertEqual(int(suite.get("tests")), len(cases))
        failed = [case for case in cases if case.find("failure") is not None]
        self.assertEqual(int(suite.get("failures")), len(failed))
        self.assertGreater(len(failed), 0)
        self.assertRegex(failed[0].get("name"), r"^add .*: add\.reference$")
        self.assertEqual(failed[0].get("classname"), "wrong.add")

    def test_junit_where_no_file_can_be(self):
        """That is said before the cases, of which nothing is shown then."""
        done = isomer.run("conform", "--device", "host", "--op", "argmax", "--junit",
                          "/nonexistent/report.xml", code=1)
        self.assertIn("/nonexistent", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_perf(self):
        found = isomer.run_json("conform", "--device", "cpu", "--op", "add", "--perf")
        timings = found["ops"][0]["timings"]
        self.assertGreater(len(timings), 0)
        for row in timings:
            self.assertGreater(row["microseconds"], 0)
            self.assertGreater(row["gigabytes_per_s"], 0)
            self.assertTrue(row["compared"])

    def test_perf_compares(self):
        arguments = ["conform", "--device", "wrong", "--backend", WRONG, "--perf"]
        text = isomer.run(*arguments, "--op", "soft_cap", code=1, env=wrong("soft_cap")).stdout
        self.assertRegex(text, r"(?m)^FAILED soft_cap .*\n  soft_cap.reference: y")
        # What would keep the user waiting is not, and says so.
        text = isomer.run("conform", "--device", "cpu", "--perf", "matmul *=1024 N=512 K=512").stdout
        self.assertRegex(text, r"(?m) matmul\.\S+: matmul \*=1024 N=512 K=512 \(not compared\)$")

    def test_refused_words(self):
        for arguments in (["--op", "nonesuch"], ["nonesuch T=1"], ["add *=3 D=5 colour=red"]):
            with self.subTest(str(arguments)):
                isomer.run("conform", "--device", "host", *arguments, code=2)

    def test_absent_device(self):
        self.assertIn("nonesuch", isomer.run("conform", "--device", "nonesuch", code=1).stderr)


if __name__ == "__main__":
    isomer.main()
