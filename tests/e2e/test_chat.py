"""`isomer chat` on a terminal."""
import os
import pty
import re
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

    def read_until(self, terminal, pattern):
        shown = ""
        while not (found := re.search(pattern, shown)):
            shown += os.read(terminal, 65536).decode(errors="replace")
        return found

    def start(self):
        """A chat below another process, as below a shell: where the first process of a terminal's session ends,
        the system itself resets the terminal. Its side of the terminal, and the chat's process id."""
        session, terminal = pty.fork()
        if session == 0:
            with subprocess.Popen([isomer.BINARY, "chat", self.model, "-c", "64"]) as chat:
                print("process", chat.pid, flush=True)
                print("ended with", chat.wait(), flush=True)
            sys.stdin.readline()
            os._exit(0)
        self.addCleanup(os.waitpid, session, 0)
        self.addCleanup(os.close, terminal)
        return terminal, int(self.read_until(terminal, r"process (\d+)").group(1))

    def test_ends_leave_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number.name):
                terminal, chat = self.start()
                before = termios.tcgetattr(terminal)
                self.read_until(terminal, r"> ")
                while termios.tcgetattr(terminal)[LOCAL_FLAGS] == before[LOCAL_FLAGS]:
                    time.sleep(0.01)  # the editor is about to read
                os.kill(chat, number)
                self.assertEqual(self.read_until(terminal, r"ended with (-?\d+)").group(1), str(-number))
                self.assertEqual(termios.tcgetattr(terminal), before)

    def test_interrupts_in_quick_succession(self):
        """At a prompt each only begins a new line, however soon the next one comes."""
        terminal, chat = self.start()
        before = termios.tcgetattr(terminal)
        self.read_until(terminal, r"> ")
        for pause in range(0, 400, 4):
            os.kill(chat, signal.SIGINT)
            time.sleep(pause * 1e-6)
            os.kill(chat, signal.SIGINT)
            time.sleep(0.002)
        time.sleep(0.1)
        os.write(terminal, b"/exit\n")
        self.assertEqual(self.read_until(terminal, r"ended with (-?\d+)\s").group(1), "0")
        self.assertEqual(termios.tcgetattr(terminal), before)


if __name__ == "__main__":
    isomer.main()
