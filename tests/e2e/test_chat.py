"""`isomer chat` on a terminal."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import isomer

LOCAL_FLAGS = 3  # of a terminal, in what tcgetattr() gives


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = os.path.join(cls.folder.name, "tiny") + "/"
        isomer.run("synth", "tiny-llama", cls.model)

    def look_for(self, terminal, pattern, seconds):
        """What matches, of all that was shown and not matched before; None where it does not come in time."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.shown.decode(errors="replace"))):
            if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
                return None
            self.shown += os.read(terminal, 65536)
        shown = self.shown.decode(errors="replace")
        self.shown = (shown[:found.start()] + shown[found.end():]).encode()
        return found

    def read_until(self, terminal, pattern):
        found = self.look_for(terminal, pattern, 120)
        self.assertIsNotNone(found, f"no {pattern} in {self.shown}")
        return found

    def start(self, *options, environment=None):
        """A chat below another process, as below a shell: where the first process of a terminal's session ends,
        the system itself resets the terminal. Its side of the terminal, the chat's process id, and how the terminal was."""
        self.shown = b""
        wait, go_on = os.pipe()
        session, terminal = pty.fork()
        if session == 0:
            os.read(wait, 1)
            with subprocess.Popen([isomer.BINARY, "chat", self.model, *(options or ("-c", "64"))],
                                  env=environment) as chat:
                os.write(1, b"process %d\n" % chat.pid)  # at once: the chat writes there too
                os.write(1, b"ended with %d\n" % chat.wait())
            sys.stdin.readline()
            os._exit(0)
        self.addCleanup(os.waitpid, session, 0)
        self.addCleanup(os.close, terminal)
        before = termios.tcgetattr(terminal)
        os.write(go_on, b".")
        os.close(wait)
        os.close(go_on)
        return terminal, int(self.read_until(terminal, r"process (\d+)\s").group(1)), before

    def test_ends_leave_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number.name):
                terminal, chat, before = self.start()
                self.read_until(terminal, r"> ")
                while termios.tcgetattr(terminal)[LOCAL_FLAGS] == before[LOCAL_FLAGS]:
                    time.sleep(0.01)  # the editor is about to read
                os.kill(chat, number)
                self.assertEqual(self.read_until(terminal, r"ended with (-?\d+)").group(1), str(-number))
                self.assertEqual(termios.tcgetattr(terminal), before)

    def test_letters_of_all_languages(self):
        """Whatever the locale: what is typed is shown, and is what the model is asked."""
        text = "é 你好 🎉 ж"
        plain = {name: value for name, value in os.environ.items() if name != "LANG" and not name.startswith("LC_")}
        for locale in ({}, {"LANG": "C"}, {"LC_ALL": "C.UTF-8"}, {"LANG": "no_SUCH"}):
            counts = []
            for typed in ("", text):
                terminal, _, _ = self.start("-c", "512", "-n", "1", "-v", environment={**plain, **locale})
                self.read_until(terminal, r"> ")
                os.write(terminal, ("a" + typed + "\n").encode())
                counts.append(int(self.read_until(terminal, f"a{typed}\r\n[\\s\\S]*?\\[(\\d+) \\+ ").group(1)))
                os.write(terminal, b"/exit\n")
                self.read_until(terminal, r"ended with 0")
            self.assertEqual(counts[1] - counts[0], len(text.encode()), locale)  # a token a byte

    def test_lines_of_a_file(self):
        def counts(text):
            errors = isomer.run("chat", self.model, "-c", 512, "-n", 1, "-v", input=text).stderr
            return re.findall(r"\[(\d+) \+ ", errors)
        self.assertEqual(len(counts("hi\nyou\n")), 2)
        self.assertEqual(counts("hi\r\n"), counts("hi\n"))
        self.assertEqual(counts("hi"), counts("hi\n"))
        self.assertEqual(counts("/exit\r\nhi\r\n"), [])
        for text in ("hi\0there\n", "hi\0\n", "hi\0"):
            self.assertIn("NUL byte at offset 2", isomer.run("chat", self.model, input=text, code=2).stderr)

    def test_interrupts_in_quick_succession(self):
        """At a prompt each only begins a new line, however soon the next one comes."""
        terminal, chat, before = self.start()
        self.read_until(terminal, r"> ")
        for pause in range(0, 400, 4):
            os.kill(chat, signal.SIGINT)
            time.sleep(pause * 1e-6)
            os.kill(chat, signal.SIGINT)
            time.sleep(0.002)
        ended = None
        for _ in range(60):  # the latest interrupt, on its way, may take a line along
            os.write(terminal, b"/exit\n")
            if ended := self.look_for(terminal, r"ended with (-?\d+)\s", 2):
                break
        self.assertEqual(ended and ended.group(1), "0")
        self.assertEqual(termios.tcgetattr(terminal), before)


if __name__ == "__main__":
    isomer.main()
