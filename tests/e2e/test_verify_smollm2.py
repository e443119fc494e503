"""`isomer verify` on a real model, whose activations have outliers that random weights lack."""
import unittest

import isomer

SMOLLM2 = isomer.need_model("ISOMER_TEST_SMOLLM2")


class RealModel(unittest.TestCase):
    def test_cpu_agrees_with_the_reference(self):
        found = isomer.run_json("verify", SMOLLM2, "-p", "The capital of France is", "-n", 4)
        cpu = found["devices"][1]
        self.assertTrue(cpu["agrees"], cpu["verdict"])
        self.assertEqual(len(cpu["layers"]), 32)  # 30, and what is before and behind them
        self.assertEqual(cpu["logits"]["rows"], found["n_prompt"])
        self.assertLess(cpu["logits"]["divergence_mean"], 0.02)
        self.assertGreaterEqual(cpu["logits"]["same_likeliest"], found["n_prompt"] - 1)


if __name__ == "__main__":
    isomer.main()
