#!/usr/bin/env python3
"""The chat page in a real browser, without a window.   test_serve_page_smollm2.py PATH_TO_ISOMER

ISOMER_TEST_SCREENSHOTS names a folder for pictures of it."""
import json
import os
import re
import shutil
import sys
import time
import unittest

import isomer
from serving import Server

# selenium is Debian's: its own Python has it.
if not (shutil.which("chromium") and shutil.which("chromedriver") and os.path.exists("/usr/bin/python3")):
    print("SKIPPED: no chromium and chromedriver; scripts/install-packages installs them")
    sys.exit(isomer.SKIPPED)
try:
    from selenium import webdriver
except ImportError:
    if os.path.realpath(sys.executable) == os.path.realpath("/usr/bin/python3"):
        print("SKIPPED: no python3-selenium; scripts/install-packages installs it")
        sys.exit(isomer.SKIPPED)
    os.execv("/usr/bin/python3", ["/usr/bin/python3", sys.argv[0], isomer.BINARY, *sys.argv[1:]])
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

MODEL = isomer.need_model("ISOMER_TEST_SMOLLM2")
PICTURES = os.environ.get("ISOMER_TEST_SCREENSHOTS")


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", "2048", "--max-sequences", "4", "--kv-memory", "200", model=MODEL)
        options = Options()
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--disable-background-networking", "--window-size=1200,800"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        cls.browser.set_page_load_timeout(60)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.stop()

    def setUp(self):
        self.dark(False)
        self.size(1200, 800)
        self.browser.get(self.server.url)
        self.browser.execute_script("localStorage.clear()")
        self.browser.get(self.server.url)

    def tearDown(self):
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"], [])

    def dark(self, on):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if on else "light"}]})

    def size(self, width, height, phone=False):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone})

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def until(self, condition, seconds=60):
        return WebDriverWait(self.browser, seconds, 0.05).until(lambda _: condition())

    def ask(self, text):
        self.one("#prompt").send_keys(text)
        self.one("#prompt").send_keys(Keys.ENTER)

    def answered(self):
        self.until(lambda: self.one("#send").is_displayed() and not self.one("#stop").is_displayed())

    def set(self, **values):
        self.one("#settings-open").click()
        for name, value in values.items():
            field = self.one(f"#settings [name={name}]")
            field.clear()
            field.send_keys(value)
        self.one("#settings button.main").click()
        self.until(lambda: not self.one("#settings").is_displayed())

    def brightness(self, selector, what):
        """Of a colour of an element, 0 to 1."""
        red, green, blue = map(float, re.findall(r"[\d.]+", self.one(selector).value_of_css_property(what))[:3])
        return (0.3 * red + 0.6 * green + 0.1 * blue) / 255

    def picture(self, name):
        if PICTURES:
            self.browser.save_screenshot(f"{PICTURES}/{name}.png")

    def test_chat_with_history(self):
        self.until(lambda: "ready" in self.one("#state").text)
        self.set(temperature="0", max_tokens="60", system="You are brief.")
        self.ask("Write a line of Python that prints hello.")
        self.answered()
        first = self.all(".message.assistant .text")[0].text
        self.assertTrue(first)
        self.assertIn("tokens/s", self.one(".message.assistant .note").text)
        self.ask("Why?")
        self.answered()
        self.assertEqual(len(self.all(".message")), 4)
        for name, is_dark in (("light", False), ("dark", True)):
            self.dark(is_dark)
            self.picture(name)
            for selector in ("body", "#side", "#prompt", "#settings-open", ".message.user .text"):
                paper, ink = self.brightness(selector, "background-color"), self.brightness(selector, "color")
                self.assertEqual(paper < ink, is_dark, selector)
                self.assertGreater(abs(paper - ink), 0.5, selector)
        self.browser.get(self.server.url)  # the conversation is still there
        self.assertEqual(len(self.all("#chats li")), 1)
        self.one("#chats button").click()
        self.assertEqual(self.all(".message.assistant .text")[0].text, first)
        self.one("#new").click()
        self.assertEqual(self.all(".message"), [])
        self.one("#chats .drop").click()
        self.assertEqual(self.all("#chats li"), [])

    def test_settings_are_what_is_asked_for_and_stay(self):
        values = {"temperature": "0.35", "top_p": "0.8", "top_k": "7", "min_p": "0.02", "repetition_penalty": "1.2",
                  "max_tokens": "3", "seed": "11", "system": "You are brief."}
        self.set(**values)
        self.browser.get(self.server.url)  # kept between visits
        self.browser.execute_script("const plain = window.fetch; window.asked = []; window.fetch = (to, how) => "
                                    "{ if (how && how.body) window.asked.push(how.body); return plain(to, how); };")
        self.ask("Hello")
        self.answered()
        self.assertIn("3 tokens", self.one(".message.assistant .note").text)
        asked, = (json.loads(body) for body in self.browser.execute_script("return window.asked"))
        for name, value in values.items():
            if name != "system":
                self.assertEqual(asked[name], float(value), name)
        self.assertEqual(asked["messages"], [{"role": "system", "content": values["system"]}, {"role": "user", "content": "Hello"}])

    def test_stop(self):
        self.ask("Write a very long story about a fox.")
        self.until(lambda: self.all(".message.assistant .text") and self.one(".message.assistant .text").text)
        self.one("#stop").click()
        self.answered()
        self.assertIn("stopped", self.one(".message.assistant .note").text)
        self.server.wait_until_idle(20)
        self.ask("Write a very long story about a bear.")
        self.until(lambda: len(self.all(".message.assistant .text")) == 2 and self.all(".message.assistant .text")[1].text)
        self.one("#prompt").send_keys(Keys.ESCAPE)
        self.answered()

    def test_streams(self):
        """Text is seen before the answer is whole."""
        self.set(max_tokens="80")
        self.ask("Tell me a story.")
        lengths = set()

        def over():
            boxes = self.all(".message.assistant .text")
            lengths.add(len(boxes[0].text) if boxes else 0)
            return self.one("#send").is_displayed()
        self.until(over)
        self.assertGreater(len(lengths), 3, lengths)

    def test_errors_are_shown_and_text_is_not_html(self):
        self.ask("word " * 3000)
        self.answered()
        self.assertIn("tokens", self.one(".message.error .text").text)
        self.browser.get_log("browser")  # the 400 is reported there
        self.one("#new").click()
        self.set(max_tokens="1")
        self.ask("<img src=x onerror=alert(1)><b>bold</b>")
        self.answered()
        self.assertEqual(self.all(".message img, .message b"), [])
        self.assertIn("<b>bold</b>", self.one(".message.user .text").text)

    def test_what_a_model_writes_does_not_run(self):
        """Answers are text nodes; and if markup got into the page all the same, its policy runs none of it."""
        bad = "<script>window.ran=1</script><img src=x onerror='window.ran=1'><svg onload='window.ran=1'>"
        fenced = f"```html\n{bad}\n``` and `{bad}` [link](javascript:window.ran=1)"
        self.browser.execute_script("localStorage.setItem('isomer.chats', JSON.stringify([{id: 1, title: arguments[0], "
                                    "messages: [{role: 'user', content: arguments[0]}, {role: 'assistant', "
                                    "content: arguments[0] + arguments[1], note: arguments[0]}]}]))", bad, fenced)
        self.browser.get(self.server.url)
        self.one("#chats button").click()
        shown = self.all(".message.assistant .text")[0]
        self.assertIn(bad, shown.text)
        self.assertEqual(self.all("#messages script, #messages img, #messages svg, #messages a, #chats img"), [])
        policy = self.server.request("GET", "/")[1]["Content-Security-Policy"]
        self.assertNotEqual(policy, self.server.request("GET", "/")[1]["Content-Security-Policy"])
        self.assertNotIn("unsafe-inline", policy.split("style-src")[0])
        self.assertEqual(self.browser.get_log("browser"), [])
        self.browser.execute_script("const box = document.createElement('div'); box.innerHTML = arguments[0]; "
                                    "document.body.append(box); const s = document.createElement('script'); "
                                    "s.textContent = 'window.ran = 1'; document.body.append(s);", bad)
        time.sleep(0.5)
        self.assertIsNone(self.browser.execute_script("return window.ran ?? null"))
        self.assertTrue(self.browser.get_log("browser"), "the policy's refusals are told in the log")

    def test_phone(self):
        self.size(390, 844, phone=True)
        self.browser.get(self.server.url)
        self.assertFalse(self.one("#side").is_displayed())
        self.set(max_tokens="40", temperature="0")
        self.ask("Hello! What can you do?")
        self.answered()
        self.picture("phone")
        wide = self.browser.execute_script("return document.documentElement.scrollWidth")
        self.assertLessEqual(wide, 390)
        self.one("#menu").click()
        self.until(lambda: self.one("#side").is_displayed())
        time.sleep(0.3)
        self.picture("phone-menu")

    def test_keyboard_alone(self):
        """Tab reaches every control, in order, and settings can be changed without a pointer."""
        self.one("#prompt").send_keys(Keys.TAB)
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "send")
        seen = []
        for _ in range(8):
            seen.append(self.browser.switch_to.active_element.get_attribute("id"))
            self.browser.switch_to.active_element.send_keys(Keys.TAB)
        self.assertIn("new", seen)
        self.assertIn("settings-open", seen)
        self.one("#settings-open").send_keys(Keys.ENTER)
        self.until(lambda: self.one("#settings").is_displayed())
        self.picture("settings")
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.until(lambda: not self.one("#settings").is_displayed())


if __name__ == "__main__":
    isomer.main()
