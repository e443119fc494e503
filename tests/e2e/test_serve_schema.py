#!/usr/bin/env python3
"""schemathesis asks all that /openapi.json allows, and some that it does not.
test_serve_schema.py PATH_TO_ISOMER

ISOMER_TEST_SCHEMA_SECONDS (20) bounds it."""
import os
import subprocess
import sys
import unittest

import isomer
from serving import Server

isomer.need_packages("schemathesis")
SECONDS = int(os.environ.get("ISOMER_TEST_SCHEMA_SECONDS", "20"))


class Schema(unittest.TestCase):
    def test_answers_are_as_described(self):
        """No 5xx, no undocumented status or media type, error bodies of the described shape. Times
        are for the slowest request on a busy machine under a sanitizer: 128 answers to the context's
        end; a request whose time is over is a 504 with reason."""
        with Server("-c", "256", "--max-sequences", "8", "-t", "1", "--access-log", "none",
                    "--request-timeout", "180") as server:
            command = [os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", server.url + "/openapi.json",
                       "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,"
                       "response_schema_conformance", "--phases", "coverage,fuzzing",
                       "--max-examples", "40", "--seed", "1", "--workers", "1", "--request-timeout", "200",
                       "--max-time", str(SECONDS), "--generation-database", "none", "--no-color"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 240,
                                  cwd=os.environ.get("TMPDIR", "/tmp"))
            self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
            print(done.stdout[-700:])
            server.wait_until_idle(60)


if __name__ == "__main__":
    isomer.main()
