#!/usr/bin/env python3
"""The status page in headless Chromium, through chromedriver: page_test.py BIN [SCREENSHOT].

Everything is there, values move under load, nothing is written to the console, a width of 360
pixels needs no sideways scrolling, light and dark differ, and a server that stopped is reported
until it is back. With SCREENSHOT, pictures are written to SCREENSHOT-phone.png and so on."""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from kv import LIMIT_S, Server, wait_until
from replicas import Group

BIN = ""
SCREENSHOT = ""


class Browser:
    """As much of WebDriver as this takes."""

    def __init__(self):
        self.scratch = tempfile.mkdtemp(prefix="rkv-page-")
        self.log_path = os.path.join(self.scratch, "log")
        with open(self.log_path, "wb") as log:
            self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=log, stderr=log,
                                           stdin=subprocess.DEVNULL,
                                           env=dict(os.environ, HOME=self.scratch))
        self.base = f"http://127.0.0.1:{wait_until(self.port, 'chromedriver')}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--no-first-run", f"--user-data-dir={self.scratch}/profile"]
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments}}}})
        self.session = "/session/" + answer["sessionId"]

    def port(self):
        with open(self.log_path, encoding="utf-8") as log:
            text = log.read()
        mark = "started successfully on port "
        return int(text.split(mark)[1].split(".")[0]) if mark in text else None

    def call(self, verb, path, body=None):
        request = urllib.request.Request(self.base + path, method=verb,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)["value"]

    def go(self, url):
        self.call("POST", self.session + "/url", {"url": url})

    def run(self, script):
        return self.call("POST", self.session + "/execute/sync", {"script": script, "args": []})

    def devtools(self, command, **parameters):
        return self.call("POST", self.session + "/goog/cdp/execute",
                         {"cmd": command, "params": parameters})

    def width(self, pixels, height):
        self.devtools("Emulation.setDeviceMetricsOverride", width=pixels, height=height,
                      deviceScaleFactor=1, mobile=pixels < 600)

    def scheme(self, name):
        self.devtools("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": name}])

    def console(self):
        return self.call("POST", self.session + "/se/log", {"type": "browser"})

    def picture(self, name):
        if not SCREENSHOT:
            return
        answer = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        with open(f"{SCREENSHOT}-{name}.png", "wb") as file:
            file.write(base64.b64decode(answer["data"]))

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait(LIMIT_S)
            shutil.rmtree(self.scratch, ignore_errors=True)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def text(self, element):
        return self.browser.run(f"return document.getElementById('{element}').textContent")

    def updates(self):
        return int(self.browser.run("return document.body.dataset.updates || 0"))

    def put_total(self):
        return self.browser.run(
            "const row = document.querySelector('[data-operation=put]');"
            "return row ? Number(row.cells[4].textContent.replaceAll(',', '')) : 0")

    def open(self, server):
        self.browser.go("about:blank")
        self.browser.console()  # what the last test left
        self.browser.go(f"http://127.0.0.1:{server.port}/")
        wait_until(lambda: self.updates() >= 1, "the first answer")

    def test_shows_the_server_and_moves_under_load(self):
        with Server(BIN, "--memory", "64MiB") as server:
            self.browser.width(1100, 900)
            self.open(server)
            self.assertEqual(self.text("state"), "ready")
            self.assertEqual(self.text("trouble"), "")
            self.assertEqual(self.text("disk"), "ok")
            self.assertEqual(self.text("memory-limit"), "64.0 MiB")
            self.assertTrue(self.browser.run("return document.getElementById('group').hidden"))
            empty = self.browser.run("return [...document.querySelectorAll('dd, main span[id]')]"
                                     ".filter(e => !e.closest('#group'))"
                                     ".filter(e => ['', '-'].includes(e.textContent)).map(e => e.id)")
            self.assertEqual(empty, [])
            records = self.text("records")
            load = server.bench("-load", "-p", "recordcount=30000")
            wait_until(lambda: self.put_total() > 0, "requests in the table")
            before = self.put_total()
            wait_until(lambda: self.put_total() > before, "the total to grow")
            wait_until(lambda: float(self.text("rate").replace(",", "")) > 0, "a rate")
            p99 = self.browser.run(
                "return document.querySelector('[data-operation=put]').cells[3].textContent")
            self.assertRegex(p99, r"^[\d.]+ (ns|µs|ms)$")
            self.assertEqual(load.wait(LIMIT_S), 0)
            wait_until(lambda: self.put_total() == 30000, "all of them")
            self.assertNotEqual(self.text("records"), records)
            self.assertGreater(
                len(self.browser.run("return document.getElementById('curve').getAttribute('points')")),
                10)
            self.browser.picture("wide")
            self.look_on_a_phone()
            self.assertEqual(self.browser.console(), [])

    def look_on_a_phone(self):
        self.browser.width(360, 740)
        scroll, inner = self.browser.run(
            "return [document.documentElement.scrollWidth, window.innerWidth]")
        self.assertEqual(inner, 360)
        self.assertLessEqual(scroll, 360)
        cut = self.browser.run(
            "return [...document.querySelectorAll('section, dd, th, td, h2, header, footer')].filter("
            "e => e.getBoundingClientRect().right > 360.5).map(e => e.id || e.textContent)")
        self.assertEqual(cut, [])
        self.assertTrue(self.browser.run("return [...document.querySelectorAll('.scroll')].every("
                                         "e => e.scrollWidth <= e.clientWidth)"), "a table is cut")
        colours = []
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            colours.append(self.browser.run("return getComputedStyle(document.body).backgroundColor"))
            self.browser.picture("phone-" + scheme)
        self.assertNotEqual(*colours)
        self.browser.scheme("light")

    def member(self, name):
        return self.browser.run(f"const row = document.querySelector('[data-member={name}]');"
                                "return row ? row.cells[1].textContent : ''")

    def test_shows_a_group_as_each_of_its_replicas_knows_it(self):
        with Group(BIN, 2) as group:
            primary, backup = group.replicas
            self.browser.width(1100, 900)
            self.open(primary)
            self.assertEqual(self.text("state"), "ready")
            self.assertEqual(self.text("trouble"), "")
            self.assertEqual(self.text("group-role"), "n1, primary")
            self.assertEqual((self.member("n1"), self.member("n2")), ("primary", "in sync"))
            self.assertRegex(self.text("group-lease"), r"^[01]\.\d s$")
            self.browser.picture("group")
            self.look_on_a_phone()
            self.browser.width(1100, 900)
            self.open(backup)
            self.assertEqual(self.text("state"), "backup")
            self.assertEqual(self.text("trouble"), "")
            self.assertEqual(self.text("group-role"), "n2, backup")
            shown = self.browser.run("return [...document.querySelectorAll('section')].filter(e => !e.hidden)"
                                     ".map(e => e.id)")
            self.assertEqual(shown, ["group"], "a backup has nothing else to show")
            self.browser.picture("backup")
            self.open(primary)
            backup.kill()
            wait_until(lambda: self.member("n2") == "not in sync", "the page to see it")
            self.assertEqual(self.text("trouble"), "not in sync: n2 · only one copy of the data")
            self.assertEqual(self.browser.run("return document.getElementById('state').className"), "warn")
            self.assertEqual(self.browser.console(), [])

    def test_says_when_the_server_has_gone_and_when_it_is_back(self):
        with Server(BIN, disk=False) as server:
            self.open(server)
            self.assertEqual(self.text("disk"), "none: memory only")
            server.command[server.command.index("--metrics") + 1] = str(server.port)
            self.assertEqual(server.stop(), 0)
            wait_until(lambda: self.text("state") == "not reachable", "the page to see it")
            self.assertIn("does not answer", self.text("trouble"))
            server.start()
            wait_until(lambda: self.text("state") == "ready", "the page to see it again")
            self.assertEqual(self.text("trouble"), "")


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    SCREENSHOT = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
    unittest.main()
