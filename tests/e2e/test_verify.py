"""`isomer verify`: devices that agree, a kernel that is wrong, recorded traces, broken ones."""
import json
import math
import os
import random
import tempfile
import unittest

import isomer

MODELS = isomer.MODELS
LLAMA = os.path.join(MODELS, "llama")  # 3 layers; 2 norms and 7 matrix products in each
PLUGINS = os.path.join(os.path.dirname(isomer.BINARY), "wrong_plugin")


def verify(*arguments, code=0, wrong=None, **variables):
    """What `isomer verify --json` says, the plug-in `wrong` being wrong in this op."""
    environment = dict(os.environ, ISOMER_BACKEND_PATH=PLUGINS, **variables)
    if wrong:
        environment["ISOMER_WRONG"] = wrong
    done = isomer.run("verify", *arguments, "--json", "-t", 2, code=code, env=environment)
    return json.loads(done.stdout)


class Agreement(unittest.TestCase):
    def test_every_architecture(self):
        for name, path in isomer.golden_models():
            with self.subTest(name):
                found = verify(path, "--devices", "host,cpu")
                host, cpu = found["devices"]
                self.assertTrue(found["agrees"] and host["agrees"] and cpu["agrees"], cpu["verdict"])
                self.assertEqual(cpu["logits"]["same_likeliest"], cpu["logits"]["rows"])
                self.assertEqual(cpu["logits"]["rows"], found["n_prompt"])
                # Products of integers round activations to 15 bits; those of FP8 do not. AMX's tiles
                # round weights to as many, too, and both under one scale for 256 columns, of which
                # the largest may be 16 deviations: 16 / 2^15 / sqrt(3).
                integers = name.startswith("quantized-") and "fp8" not in name
                tiles = "(amx)" in cpu["description"]
                self.assertLess(cpu["logits"]["divergence_worst"],
                                (1e-6 if tiles else 1e-7) if integers else 1e-8)
                self.assertNotIn("first_difference", cpu["greedy"])
                self.assertGreater(cpu["greedy"]["tokens"], 0)
                beside = cpu["beside"]
                self.assertGreater(beside["steps"], 20)
                self.assertEqual((beside["wrong"], beside["same_likeliest"]), (0, beside["rows"]))
                worst = max(row["worst_op"]["op_error"] for row in cpu["layers"])
                self.assertLess(worst, (3e-4 if tiles else 1e-4) if integers else 1e-5)

    def test_every_layer_has_a_row(self):
        cpu = verify(LLAMA)["devices"][1]
        self.assertEqual([row["layer"] for row in cpu["layers"]], [-1, 0, 1, 2, 3])
        self.assertEqual(cpu["layers"][-1]["worst_value"]["layer"], 3)

    def test_cache_types_and_steps(self):
        for extra in (["--kv-type", "f16"], ["--kv-type", "bf16"], ["--kv-type", "q8_0"],
                      ["-b", 7], ["-b", 1], ["-n", 1], ["-c", 45]):
            with self.subTest(str(extra)):
                self.assertTrue(verify(LLAMA, *extra)["agrees"])

    def test_every_scheme(self):
        with tempfile.TemporaryDirectory() as folder:
            for scheme in ("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k",
                           "q4_k", "q5_k", "q6_k", "iq4_nl"):
                path = os.path.join(folder, scheme + ".gguf")
                with self.subTest(scheme):
                    isomer.run("synth", "tiny-llama", path, "--scheme", scheme)
                    cpu = verify(path)["devices"][1]
                    self.assertTrue(cpu["agrees"], cpu["verdict"])

    def test_types_between_ops(self):
        """Where values are stored in 16 bits, a last place of them is rounding, op by op."""
        with tempfile.TemporaryDirectory() as folder:
            for shape, scheme in (("tiny-qwen3", "q4_0"), ("tiny-qwen2", "bf16")):
                path = os.path.join(folder, shape + ".gguf")
                isomer.run("synth", shape, path, "--scheme", scheme)
                for activation in ("bf16", "f16", "int8"):
                    with self.subTest(f"{shape} {scheme} {activation}"):
                        cpu = verify(path, "--activation", activation)["devices"][1]
                        self.assertTrue(cpu["agrees"], cpu["verdict"])


class WrongKernel(unittest.TestCase):
    def check(self, wrong, op, layer):
        found = verify(LLAMA, "--devices", "host,wrong", wrong=wrong, code=1)
        device = found["devices"][1]
        self.assertFalse(found["agrees"])
        # Many rows at once, and one row: the same node, and no other.
        self.assertEqual([(row["op"], row["layer"], row["kernel"]) for row in device["wrong"]],
                         [(op, layer, op + ".reference")] * 2)
        self.assertEqual(len({row["node"] for row in device["wrong"]}), 1)
        self.assertEqual([row["step"] for row in device["wrong"]], [1, 2])
        self.assertAlmostEqual(device["wrong"][0]["op_error"], 0.01, delta=0.002)
        self.assertIn(f"wrong is wrong: {op} ", device["verdict"])
        return device

    def test_is_named(self):
        for wrong, op, layer in (("rms_norm:3:7", "rms_norm", 1), ("matmul:15:22", "matmul", 2),
                                 ("embedding", "embedding", -1), ("glu:0:3", "glu", 0),
                                 ("rope:2:6", "rope", 1), ("paged_attention:2:3",
                                                          "paged_attention", 2),
                                 ("add:4:6", "add", 2), ("gather_rows", "gather_rows", 3),
                                 ("matmul:21:22", "matmul", 3)):
            with self.subTest(wrong):
                device = self.check(wrong, op, layer)
                beyond = device["first_beyond"]
                self.assertEqual((beyond["op"], beyond["layer"]), (op, layer))
                self.assertEqual(beyond["node"], device["wrong"][0]["node"])

    def test_numbers_are_json(self):
        """Errors without an end are numbers that a reader of doubles can hold."""
        device = verify(LLAMA, "--devices", "host,wrong", wrong="rms_norm~", code=1)["devices"][1]
        worst = [row["worst_value"]["error"] for row in device["layers"] if "worst_value" in row]
        self.assertGreater(max(worst), 1e300)
        self.assertTrue(all(map(math.isfinite, worst + [device["logits"]["divergence_worst"]])), worst)

    def test_in_the_cache(self):
        device = self.check("kv_write:1:3", "kv_write", 1)
        # Nobody compares caches, but attention reads them.
        self.assertEqual(device["first_beyond"]["op"], "paged_attention")

    def test_as_the_only_device(self):
        found = verify(LLAMA, "--devices", "wrong", wrong="rms_norm:3:7", code=1)
        self.assertEqual({row["layer"] for row in found["devices"][0]["wrong"]}, {1})

    def test_beside_others(self):
        """Right for one sequence, wrong for several in a step: no op shows that."""
        found = verify(LLAMA, "--devices", "host,wrong", wrong="paged_attention+", code=1)
        host, device = found["devices"]
        self.assertNotIn("beside", host)
        self.assertEqual(device["wrong"], [])
        self.assertNotIn("first_beyond", device)
        self.assertGreater(device["beside"]["wrong"], 0)
        self.assertGreater(device["beside"]["error"], device["beside"]["tolerance"])
        self.assertRegex(device["verdict"], r"^wrong is wrong in steps as serving runs them.*"
                         r": sequence \d+ at position \d+, .* in a step of \d+ sequences and \d+ rows")
        environment = dict(os.environ, ISOMER_BACKEND_PATH=PLUGINS, ISOMER_WRONG="paged_attention+")
        done = isomer.run("verify", LLAMA, "--devices", "wrong", code=1, env=environment)
        self.assertRegex(done.stdout, r"(?m)^\d+ rows are WRONG; the first is of sequence ")

    def test_alone_where_nobody_looks(self):
        """The 40 tokens of the prompt are in one step then, and before in two."""
        device = verify(LLAMA, "--devices", "wrong", "-n", 1, wrong="rms_norm=40", code=1)["devices"][0]
        self.assertEqual(device["wrong"], [])
        self.assertRegex(device["verdict"], r": the prompt alone: logits are .* from those of the steps")

    def test_how_many_beside(self):
        for n in (2, 48):
            beside = verify(LLAMA, "--devices", "cpu", "--sequences", n)["devices"][0]["beside"]
            self.assertEqual((beside["sequences"], beside["wrong"]), (n, 0))
        self.assertNotIn("beside", verify(LLAMA, "--devices", "cpu", "--sequences", 1)["devices"][0])
        done = isomer.run("verify", LLAMA, "--devices", "cpu", "--sequences", 129, code=1)
        self.assertIn("at most 128", done.stderr)

    def test_beside_others_while_steps_overlap(self):
        late = os.path.join(os.path.dirname(isomer.BINARY), "late_plugin")
        done = isomer.run("verify", LLAMA, "--devices", "late", "--json",
                          env=dict(os.environ, ISOMER_BACKEND_PATH=late))
        found = json.loads(done.stdout)
        self.assertEqual(found["devices"][0]["beside"]["error"], 0)

    def test_text(self):
        environment = dict(os.environ, ISOMER_BACKEND_PATH=PLUGINS, ISOMER_WRONG="rms_norm:3:7")
        done = isomer.run("verify", LLAMA, "--devices", "host,wrong", code=1, env=environment)
        self.assertRegex(done.stdout, r"WRONG rms_norm in layer 1 \(kernel rms_norm.reference")
        self.assertRegex(done.stdout, r"(?m)^first beyond tolerance: rms_norm in layer 1 ")
        self.assertRegex(done.stdout.rstrip().splitlines()[-1], r"^wrong is wrong: rms_norm in ")


class Traces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "trace")

    def test_the_model_is_no_place_for_a_trace(self):
        model = self.path + ".gguf"
        isomer.run("synth", "tiny-llama", model)
        with open(model, "rb") as file:
            before = file.read()
        done = isomer.run("verify", model, "--devices", "host", "--record", model, code=2)
        self.assertIn("is the model itself", done.stderr)
        with open(model, "rb") as file:
            self.assertEqual(file.read(), before)
        os.unlink(model)

    def test_recorded_here_judged_there(self):
        verify(LLAMA, "--devices", "host", "--record", self.path, "-n", 5)
        found = verify(LLAMA, "--devices", "cpu", "--against", self.path)
        self.assertTrue(found["agrees"])
        self.assertEqual(found["devices"][0]["greedy"]["tokens"], 5)
        self.assertEqual(found["devices"][0]["logits"]["rows"], found["n_prompt"])

    def test_split_over_devices(self):
        whole = verify(LLAMA, "--device", "cpu,host", "--split", "2,1")
        self.assertEqual([run["device"] for run in whole["devices"]], ["host", "cpu,host"])
        self.assertTrue(whole["agrees"])
        kernels = {row["worst_value"]["kernel"].rsplit(".", 1)[1] for row in whole["devices"][1]["layers"]}
        self.assertIn("reference", kernels)
        self.assertGreater(len(kernels), 1)
        verify(LLAMA, "--devices", "host", "--record", self.path, "-n", 4)
        found = verify(LLAMA, "--device", "cpu,host", "--split", "2,1", "--against", self.path)
        self.assertEqual([run["device"] for run in found["devices"]], ["cpu,host"])
        self.assertTrue(found["agrees"])

    def test_device_or_devices(self):
        for words, said in ((("--device", "cpu", "--devices", "host,cpu"), "give one of them"),
                            (("--split", "1,1"), "name its devices with --device")):
            done = isomer.run("verify", LLAMA, *words, code=2)
            self.assertIn(said, done.stderr)

    def test_tiers_of_a_processor(self):
        gemma = os.path.join(MODELS, "gemma3")
        verify(gemma, "--devices", "cpu", "--record", self.path, ISOMER_CPU_ISA="baseline")
        device = verify(gemma, "--devices", "cpu", "--against", self.path)["devices"][0]
        self.assertTrue(device["agrees"])
        self.assertGreater(max(row["worst_value"]["error"] for row in device["layers"]), 0)

    def test_steps_are_the_trace_s(self):
        verify(LLAMA, "--devices", "host", "--record", self.path, "-b", 7)
        found = verify(LLAMA, "--devices", "cpu", "--against", self.path)
        self.assertTrue(found["agrees"])
        self.assertEqual(found["devices"][0]["logits"]["rows"], found["n_prompt"])

    def test_a_wrong_judge(self):
        verify(LLAMA, "--devices", "wrong", "--record", self.path, wrong="glu:1:3", code=1)
        device = verify(LLAMA, "--devices", "cpu", "--against", self.path, code=1)["devices"][0]
        self.assertEqual(device["wrong"], [])
        self.assertEqual((device["first_beyond"]["op"], device["first_beyond"]["layer"]), ("glu", 1))
        self.assertIn("look at ", device["verdict"])

    def test_of_another_model(self):
        verify(LLAMA, "--devices", "host", "--record", self.path)
        done = isomer.run("verify", os.path.join(MODELS, "qwen2"), "--against", self.path, code=2)
        self.assertIn("another model", done.stderr)

    def test_brings_its_prompt(self):
        verify(LLAMA, "--devices", "host", "--record", self.path)
        isomer.run("verify", LLAMA, "--against", self.path, "--record", self.path, code=2)

    def test_broken(self):
        verify(LLAMA, "--devices", "host", "--record", self.path, "-n", 2)
        with open(self.path, "rb") as file:
            whole = file.read()
        chance = random.Random(1)
        cases = [b"", b"ISOTRACE", whole[:-1], whole[:len(whole) // 2], whole + b"\0" * 8,
                 b"GGUF" + whole[4:]]
        for _ in range(20):  # sizes and kinds near the start
            broken = bytearray(whole)
            broken[chance.randrange(8, 500)] ^= 1 << chance.randrange(8)
            cases.append(bytes(broken))
        for number, data in enumerate(cases):
            with self.subTest(number), open(self.path, "wb") as file:
                file.write(data)
                file.flush()
                arguments = ["verify", LLAMA, "--devices", "host", "--against", self.path]
                if number < 6:
                    self.assertIn("trace", isomer.run(*arguments, code=1).stderr)
                    continue
                # A flipped bit may also be harmless, or make another model of it; never a crash.
                try:
                    isomer.run(*arguments)
                except AssertionError as error:
                    self.assertRegex(str(error), r"exited with [12], ")


class Prompts(unittest.TestCase):
    def test_without_a_tokenizer(self):
        done = isomer.run("verify", LLAMA, "-p", "text", code=1)
        self.assertIn("tokenizer", done.stderr)

    def test_absent_device(self):
        done = isomer.run("verify", LLAMA, "--devices", "host,nonesuch", code=1)
        self.assertIn("nonesuch", done.stderr)

    def test_longer_than_the_context(self):
        isomer.run("verify", LLAMA, "-c", 8, code=1)


if __name__ == "__main__":
    isomer.main()
