"""The Vulkan plug-in on Mesa's software rasteriser, which every machine can run, under the
validation layer."""
import glob
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import unittest

import isomer

FOLDER = os.path.join(isomer.SOURCE, "backends", "vulkan")
MODELS = isomer.MODELS
PLUGINS = os.path.dirname(isomer.BINARY)
DRIVERS = glob.glob("/usr/share/vulkan/icd.d/lvp_icd*.json")
LAYERS = glob.glob("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json")

# Ops whose whole grid takes a few seconds at most.
WHOLE = ["glu", "activate", "add", "soft_cap", "convert", "rms_norm", "layer_norm", "softmax",
         "rope", "gather_rows", "argmax", "route_top_k", "combine_experts", "kv_write", "sample",
         "quantize_rows", "grouped_matmul"]
# Of the others, what takes each path once: few rows and many, odd sizes, every scheme.
SCHEMES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k",
           "q5_k", "q6_k", "iq4_nl", "i8_g128", "f8_g128", "i4_g128"]
CASES = [f"matmul *={rows} N=33 K=512 weight={scheme}" for scheme in SCHEMES for rows in (3, 17)] + [
    f"embedding T=5 V=33 D=512 table={scheme} rows=bf16 scale=2" for scheme in SCHEMES] + [
    "matmul *=1 N=1030 K=7 weight=f16 rows=f32",
    "matmul *=70 N=65 K=127 weight=bf16 rows=f32",
    "matmul *=2x3 N=16 K=256 weight=q4_k rows=bf16 bias=f32 gap=64",
    "matmul *=9 N=24 K=512 weight=q8_0 fill=outlier",
    "paged_attention T=17 H=4 G=2 D=64 E=64 P=40 S=16 Q=4 B=20 batch=mixed",
    "paged_attention T=16 H=4 G=1 D=64 E=64 P=80 S=16 Q=17 B=5 batch=decode rows=bf16 "
    "k_cache=q8_0 v_cache=q8_0",
    "paged_attention T=40 H=6 G=2 D=128 E=64 P=30 S=16 Q=3 B=8 batch=prefill rows=f16 "
    "k_cache=f16 v_cache=bf16",
    "paged_attention T=17 H=6 G=2 D=128 E=128 P=60 S=16 Q=3 B=20 batch=mixed k_cache=f8_g128 "
    "v_cache=f16",
    "paged_attention T=3 H=6 G=2 D=256 E=128 P=60 S=16 Q=3 B=20 batch=decode rows=bf16 "
    "cache=f8_g128",
    "paged_attention T=12 H=8 G=1 D=80 E=256 P=30 S=7 Q=5 B=6 cache=f32",
    "paged_attention T=33 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 soft_cap=5 scale=0.3 "
    "alibi_slopes=f32 window=9 causal=0 rows=f32",
    "paged_attention T=6 H=2 G=1 D=64 E=64 P=80 S=64 Q=2 B=40 batch=decode",
    "paged_attention T=0 H=2 G=1 D=64 E=64 P=4 S=16 Q=2 B=2",
]


def environment(validate=True, **variables):
    found = dict(os.environ, VK_ICD_FILENAMES=DRIVERS[0], ISOMER_BACKEND_PATH=PLUGINS, **variables)
    if validate and LAYERS:
        found["VK_INSTANCE_LAYERS"] = "VK_LAYER_KHRONOS_validation"
    return found


def run(*arguments, code=0, **options):
    done = isomer.run(*arguments, code=code, env=environment(**options))
    for text in (done.stdout, done.stderr):
        if re.search(r"VUID|Validation (Error|Warning)", text):
            raise AssertionError(f"the validation layer speaks:\n{text}")
    return done


def check_tier(test, tier, *schemes):
    """A model in these schemes agrees with the host in this tier."""
    for scheme in schemes:
        with test.subTest(scheme), tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            run("quantize", os.path.join(MODELS, "llama-gguf", "model.gguf"), path,
                "--scheme", scheme)
            done = run("verify", path, "--devices", "host,vulkan:0", "--json",
                       "--sequences", 1, ISOMER_VULKAN_TIER=tier)
            device = json.loads(done.stdout)["devices"][1]
            test.assertTrue(device["agrees"], device["verdict"])


class Devices(unittest.TestCase):
    def test_the_layer_is_on(self):
        if not LAYERS:
            self.skipTest("the validation layer is not installed")
        done = run("conform", "--device", "vulkan:0", "add *=3 D=5", VK_LOADER_DEBUG="layer")
        self.assertRegex(done.stderr, r'Insert instance layer "VK_LAYER_KHRONOS_validation"')

    def test_software_only_by_index(self):
        done = run("conform", "--device", "vulkan", "add *=3 D=5", code=1)
        self.assertRegex(done.stderr, r"no device but a software one, llvmpipe.*write vulkan:0")

    def test_no_driver(self):
        listing = isomer.run("devices", env=dict(environment(False), VK_ICD_FILENAMES="/nowhere"))
        self.assertRegex(listing.stdout, r"(?m)^vulkan .*no Vulkan driver")

    def test_tiers(self):
        run("conform", "--device", "vulkan:0", "add *=3 D=5", ISOMER_VULKAN_TIER="plain")
        done = run("conform", "--device", "vulkan:0", "add *=3 D=5", code=2,
                   ISOMER_VULKAN_TIER="best")
        self.assertIn('"best", not plain, fp16, dot, matrix or matrix2', done.stderr)

    def test_a_foreign_cache_folder(self):
        run("conform", "--device", "vulkan:0", "add *=3 D=5", XDG_CACHE_HOME="/proc/nowhere")


class Kernels(unittest.TestCase):
    def check(self, *arguments):
        found = json.loads(run("conform", "--device", "vulkan:0", *arguments, "--json").stdout)
        self.assertEqual(found["failed"], 0)
        self.assertGreater(found["passed"], 0)
        return found

    def test_whole_grids(self):
        for op in WHOLE:
            with self.subTest(op):
                # Super-blocks and groups of 128 are encoded on the host.
                self.assertEqual(self.check("--op", op)["refused"] > 0, op == "quantize_rows")

    def test_cases(self):
        for case in CASES:
            with self.subTest(case):
                self.check(case)


class IntegerDotProducts(unittest.TestCase):
    """The tier is used by name alone where the device only emulates it, as here."""

    def test_cases(self):
        blocks = ["*=1 N=70 K=1088 bias=f32 rows=f16", "*=1 N=1 K=32 rows=f32"]
        groups = ["*=1 N=70 K=1152 bias=f32 rows=f16", "*=1 N=1 K=128 rows=f32"]
        for scheme, odd in (("q8_0", blocks), ("q4_0", blocks), ("i8_g128", groups),
                            ("i4_g128", groups)):
            for case in odd + ["*=1 N=33 K=512 rows=bf16", "*=1 N=24 K=512 fill=outlier",
                               "*=1 N=24 K=512 fill=tiny", "*=1 N=9 K=12288 rows=bf16",
                               "*=1 N=7 K=14336 rows=bf16"]:
                with self.subTest(scheme=scheme, case=case):
                    done = run("conform", "--device", "vulkan:0", f"matmul {case} weight={scheme}",
                               "--json", ISOMER_VULKAN_TIER="dot")
                    found = json.loads(done.stdout)
                    self.assertEqual(found["failed"], 0)
                    self.assertGreater(found["passed"], 0)

    def test_models(self):
        check_tier(self, "dot", "q8_0", "q4_0")

    def test_groups(self):
        """Whole layers of INT8 and INT4, gated units among them, with zero points and without."""
        for name in ("int8", "int4", "int4-zeros", "awq", "gptq", "gptq-row"):
            with self.subTest(name):
                done = run("verify", os.path.join(MODELS, "quantized-" + name), "--devices",
                           "host,vulkan:0", "--json", "--sequences", 1, ISOMER_VULKAN_TIER="dot")
                device = json.loads(done.stdout)["devices"][1]
                self.assertTrue(device["agrees"], device["verdict"])
                self.assertNotIn("first_difference", device["greedy"])


class Halves(unittest.TestCase):
    """The tier of packed arithmetic of halves, which is used by name alone."""

    def setUp(self):
        done = isomer.run("devices", env=environment(False, ISOMER_VULKAN_TIER="fp16"))
        if "tier fp16" not in done.stdout:
            self.skipTest("the driver has no arithmetic of halves: " + done.stdout)

    def count(self, text, tier):
        found = json.loads(run("conform", "--device", "vulkan:0", text, "--json",
                               ISOMER_VULKAN_TIER=tier).stdout)
        self.assertEqual(found["failed"], 0)
        return found["passed"]

    def test_schemes(self):
        for scheme in SCHEMES[3:]:
            with self.subTest(scheme):
                text = f"matmul *=17 N=33 K=512 rows=f32 weight={scheme}"
                # Records of this tier come on top of as many of f32.
                self.assertEqual(self.count(text, "fp16"), 2 * self.count(text, "plain"))

    def test_cases(self):
        for scheme in ("q8_0", "q6_k"):
            for case in ("*=70 N=70 K=768 bias=f32 rows=bf16", "*=2x5 N=16 K=256 rows=f16 gap=64",
                         "*=9 N=24 K=512 fill=outlier", "*=9 N=24 K=512 fill=large",
                         "*=9 N=24 K=512 fill=tiny", "*=9 N=24 K=512 fill=extreme",
                         "*=9 N=7 K=14336 rows=bf16"):
                with self.subTest(scheme=scheme, case=case):
                    self.assertGreater(self.count(f"matmul {case} weight={scheme}", "fp16"), 0)

    def test_floats_lose_nothing(self):
        for scheme in ("f32", "f16", "bf16"):
            done = run("conform", "--device", "vulkan:0", f"matmul *=17 N=33 K=512 weight={scheme}",
                       "--json", ISOMER_VULKAN_TIER="fp16")
            self.assertEqual(json.loads(done.stdout)["passed"], 1)

    def test_models(self):
        check_tier(self, "fp16", "q8_0", "q4_0", "q4_k")


class Models(unittest.TestCase):
    def test_a_long_answer(self):
        """Steps of one token rotate, write and attend by one dispatch, whose workgroups join the
        parts of the context that they see."""
        for name in ("llama-gguf/model.gguf", "mistral-window", "gemma3"):
            with self.subTest(name):
                done = run("verify", os.path.join(MODELS, name), "--devices", "cpu,vulkan:0",
                           "-n", "100", "-t", "2", "--json", "--sequences", 1)
                greedy = json.loads(done.stdout)["devices"][1]["greedy"]
                self.assertNotIn("first_difference", greedy)
                self.assertGreater(greedy["tokens"], 64)

    def test_every_architecture(self):
        for name, path in isomer.golden_models():
            with self.subTest(name):
                beside = 1 if name.startswith("quantized") else 4
                done = run("verify", path, "--devices", "cpu,vulkan:0", "-t", 2, "--json",
                           "--sequences", beside)
                device = json.loads(done.stdout)["devices"][1]
                self.assertTrue(device["agrees"], device["verdict"])
                self.assertNotIn("first_difference", device["greedy"])
                self.assertGreater(device["greedy"]["tokens"], 0)

    def test_two_devices(self):
        """A copy of the rasteriser is another driver, with a device of its own."""
        with tempfile.TemporaryDirectory() as folder, open(DRIVERS[0]) as file:
            manifest = json.load(file)
            library = manifest["ICD"]["library_path"]
            copy, second = os.path.join(folder, "copy.so"), os.path.join(folder, "copy.json")
            found = glob.glob(library) or glob.glob("/usr/lib/*/" + library)
            if not found:
                self.skipTest(f"{library} is not found")
            shutil.copyfile(found[0], copy)
            manifest["ICD"]["library_path"] = copy
            with open(second, "w") as out:
                json.dump(manifest, out)
            done = isomer.run("verify", os.path.join(MODELS, "llama-gguf", "model.gguf"),
                              "--device", "vulkan:0,vulkan:1", "--json", "--sequences", "4",
                              env=dict(environment(), VK_ICD_FILENAMES=f"{DRIVERS[0]}:{second}"))
            self.assertNotRegex(done.stdout + done.stderr, r"VUID|Validation (Error|Warning)")
            device = json.loads(done.stdout)["devices"][1]
            self.assertTrue(device["agrees"], device["verdict"])

    def test_smollm2(self):
        model = os.environ.get("ISOMER_TEST_SMOLLM2")
        if not model:
            self.skipTest("ISOMER_TEST_SMOLLM2 is not set; scripts/test sets it")
        texts = [run("run", model, "-p", "The capital of France is", "-n", 6, "--temp", 0,
                     "--activation", "f32", "--device", device, validate=False).stdout
                 for device in ("cpu", "vulkan:0")]
        self.assertEqual(texts[0], texts[1])
        self.assertTrue(texts[0].strip())


def with_includes(name):
    """The text of a shader's source, followed by that of what it includes, in order."""
    with open(os.path.join(FOLDER, "shaders", name), "rb") as file:
        text = file.read()
    parts = re.findall(rb'(?m)^#include "(.*)"$', text)
    return text + b"".join(with_includes(part.decode()) for part in parts)


class KeptShaders(unittest.TestCase):
    def test_are_current(self):
        """What spirv/ holds was made from the sources beside it, by spirv/make."""
        with open(os.path.join(FOLDER, "shaders.def")) as file:
            kept = re.findall(r'(?m)^VULKAN_KEPT_SHADER\((\w+), (\w+), "(.*)"\)$', file.read())
        self.assertTrue(kept)
        for name, source, defines in kept:
            digest = hashlib.sha256(with_includes(source + ".comp"))
            with open(os.path.join(FOLDER, "spirv", name + ".inc")) as file:
                self.assertEqual(file.readline().strip(),
                                 f"/* {digest.hexdigest()} {defines} */", name)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(PLUGINS, "libisomer-vulkan.so")):
        print("SKIPPED: libisomer-vulkan.so was not built (no glslc or no Vulkan headers)")
        sys.exit(isomer.SKIPPED)
    if not DRIVERS:
        print("SKIPPED: Mesa's software rasteriser is not installed (mesa-vulkan-drivers)")
        sys.exit(isomer.SKIPPED)
    isomer.main()
