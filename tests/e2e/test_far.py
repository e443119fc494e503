"""A device whose memory the host cannot look into gives the same text: inputs and weights are staged,
tokens are drawn on the device, and logits come to the host only when something needs them."""
import os
import tempfile
import unittest

import isomer

PLUGINS = os.path.join(os.path.dirname(isomer.BINARY), "far_plugin")
ENVIRONMENT = dict(os.environ, ISOMER_BACKEND_PATH=PLUGINS)


class Far(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "model.gguf")
        isomer.run("synth", "tiny-llama", cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def text(self, device, *options):
        return isomer.run("run", self.model, "--raw", "-p", "The history of the", "-n", 24, "--device",
                          device, *options, env=ENVIRONMENT).stdout

    def test_same_text(self):
        for options in (["--temp", 0], ["--temp", 1, "-s", 7], ["--temp", 2, "-s", 7, "--top-k", 5],
                        ["--temp", 2, "-s", 3, "--top-p", 0.5, "--top-k", 0, "--min-p", 0],
                        ["--temp", 1, "-s", 7, "--repeat-penalty", 1.3],
                        ["--temp", 1, "-s", 7, "--presence-penalty", 1]):
            with self.subTest(str(options)):
                near = self.text("host", *options)
                self.assertTrue(near.strip())
                self.assertEqual(self.text("far:0", *options), near)

    def test_bench_and_perplexity(self):
        isomer.run("bench", self.model, "-p", 8, "-n", 4, "-r", 1, "--batch", 3, "--device", "far:0",
                   env=ENVIRONMENT)
        near, far = (isomer.run("perplexity", self.model, "-f", __file__, "-c", 32, "--device", device,
                                env=ENVIRONMENT).stdout for device in ("host", "far:0"))
        self.assertEqual(near, far)


if __name__ == "__main__":
    isomer.main()
