"""A headless Chromium, spoken to by chromedriver's own HTTP: what a page shows, and what it asks of the network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_OFTEN = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> tuple[str, str] | None:
    """The paths of a Chromium and its driver, where this machine has both."""
    browser, driver = next(filter(None, map(shutil.which, _OFTEN)), None), shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One window of one browser."""

    def __init__(self, url: str, browser: str, profile: Path) -> None:
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        arguments += ["--no-first-run", "--window-size=1400,1000", f"--user-data-dir={profile}"]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": browser, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._url = url
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._url = f"{url}/session/{made['sessionId']}"

    def open(self, path: Path) -> None:
        """Open a file, and return when it is loaded."""
        self._ask("POST", "/url", {"url": path.as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """Run a function's body in the page, and return what it returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def texts(self, selector: str) -> list[str]:
        """What the elements that match show, in their order."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())"
        return list(self.run(script, selector))

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that matches and holds a text."""
        script = "return [...document.querySelectorAll(arguments[0])].find((e) => e.innerText.includes(arguments[1]))"
        element = self.run(script, selector, text)[_ELEMENT]
        self._ask("POST", f"/element/{element}/click", {})

    def press(self, keys: str) -> None:
        """Press keys where the focus is."""
        focused = self._ask("GET", "/element/active")[_ELEMENT]
        self._ask("POST", f"/element/{focused}/value", {"text": keys})

    def prefer(self, scheme: str) -> None:
        """Let the page believe that its reader prefers `light` or `dark`."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": media})

    def complaints(self) -> list[str]:
        """What the console has been told, errors of scripts and refusals of policies among it, since the last look."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def requests(self, page: str) -> list[str]:
        """The addresses that a page asked for since the last look, its own first. The browser's own pages ask too."""
        messages = [json.loads(e["message"])["message"] for e in self._ask("POST", "/se/log", {"type": "performance"})]
        sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent if params["documentURL"] == page]

    def close(self) -> None:
        self._ask("DELETE", "")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]


@contextmanager
def a_browser(folder: Path) -> Iterator[Browser]:
    """Start a driver and a browser of its own, and end both."""
    found = chromium()
    assert found is not None
    browser, driver = found
    with subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            said = next(line for line in process.stdout if "started successfully on port" in line)
            port = re.findall(r"port (\d+)", said)[0]
            window = Browser(f"http://127.0.0.1:{port}", browser, folder / "profile")
            try:
                yield window
            finally:
                window.close()
        finally:
            process.terminate()
