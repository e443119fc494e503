"""A device that fails in mid-run: whoever waits is told why, the server says that it is not ready, answers
503 from then on and still stops in order."""
import json
import os
import threading
import unittest

import isomer
import serving

ENVIRONMENT = {"ISOMER_BACKEND_PATH": os.path.join(os.path.dirname(isomer.BINARY), "late_plugin"),
               "ISOMER_LATE_FAULT": "2000"}
LONG = {"prompt": "The history of the", "max_tokens": 400, "temperature": 0, "ignore_eos": True}


class Fault(unittest.TestCase):
    def test_fault(self):
        with serving.Server("--device", "late:0", "-c", 512, environment=ENVIRONMENT) as server:
            self.assertEqual(json.loads(server.get("/health"))["status"], "ready")
            answers = [None] * 4

            def ask(i):
                answers[i] = server.request("POST", "/v1/completions", dict(LONG, stream=i % 2 == 0))
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            for i, (status, _, body) in enumerate(answers):
                with self.subTest(i):
                    # A stream that had begun ends with the error; all others have its status.
                    self.assertIn(b"late device", body)
                    self.assertEqual(status, 200 if b"data: " in body else 503)
                    self.assertNotIn(b"[DONE]", body)
            status, _, body = server.request("GET", "/health")
            self.assertEqual(status, 503)
            self.assertEqual(json.loads(body)["status"], "failed")
            self.assertIn("late device", json.loads(body)["reason"])
            self.assertEqual(server.request("GET", "/health/ready")[0], 503)
            self.assertEqual(server.request("GET", "/health/live")[0], 200)
            status, _, body = server.request("POST", "/v1/completions", LONG)
            self.assertEqual(status, 503)
            self.assertEqual(json.loads(body)["error"]["code"], "device_error")
            self.assertIn("isomer_", server.get("/metrics"))


if __name__ == "__main__":
    isomer.main()
