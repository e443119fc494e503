"""`isomer inspect` of quantized folders: matrices as they are read, not the parts in the files."""
import os
import unittest

import isomer

MODELS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "models")
SCHEMES = {"awq": "i4_g128", "gptq": "i4_g128", "gptq-row": "i4_g128", "int4": "i4_g128", "int4-zeros": "i4_g128",
           "int8": "i8_g128", "fp8": "f8_g128", "fp8-block": "f8_g128", "fp8-tensor": "f8_g128"}
ELEMENTS = 2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128  # q and o; k and v; gate, up and down


class Quantized(unittest.TestCase):
    def test_matrices_are_whole(self):
        for name, scheme in SCHEMES.items():
            with self.subTest(name=name):
                path = os.path.join(MODELS, f"quantized-{name}")
                tensors = isomer.run_json("inspect", path, "--tensors")["tensors"]
                matrices = [tensor for tensor in tensors if "_proj" in tensor["name"]]
                self.assertEqual({tensor["scheme"] for tensor in matrices}, {scheme})
                self.assertEqual(len({tensor["name"] for tensor in matrices}), 7)
                self.assertTrue(all(tensor["name"].endswith("_proj.weight") for tensor in matrices))
                elements = sum(tensor["dims"][0] * tensor["dims"][1] for tensor in matrices)
                self.assertEqual(elements, ELEMENTS)
                self.assertIn("model.layers.0.input_layernorm.weight", [tensor["name"] for tensor in tensors])


if __name__ == "__main__":
    isomer.main()
