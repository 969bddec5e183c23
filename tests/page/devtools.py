"""A headless Chromium for tests, driven over the DevTools protocol through two pipes: no port, no library.

Nothing can be fetched: names resolve to nothing, the proxy is a dead port, and every request that the page
makes is recorded.
"""

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9", "--remote-debugging-pipe",
)  # fmt: skip
WAIT_S = 120.0


def program():
    """The browser on this machine; None when there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser gave an error, or no answer in time."""


class Browser:
    """One browser process with one tab at a time."""

    def __init__(self, profile):
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._count, self._left, self.events = 0, b"", []
        # The browser reads commands from descriptor 3 and answers on 4. Not sh: dash knows descriptors up to 9.
        shell = f'exec "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, "bash", program(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(commands, answers),
        )  # fmt: skip
        os.close(commands)
        os.close(answers)

    def close(self):
        """End the browser."""
        try:
            self.call("Browser.close")
        except (BrowserError, OSError):
            self._process.kill()
        self._process.wait(WAIT_S)
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method, session=None, **params):
        """Send one command and return its result; events on the way are kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + WAIT_S
        while True:
            found = self._next(end)
            if found.get("id") == self._count:
                if "error" in found:
                    raise BrowserError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def wait_for(self, method, session, **params):
        """Wait for an event with these parameters, among others."""

        def meant(event):
            named = (event.get("method"), event.get("sessionId")) == (method, session)
            return named and params.items() <= event["params"].items()

        end = time.monotonic() + WAIT_S
        while not any(meant(event) for event in self.events):
            self.events.append(self._next(end))

    def _next(self, end):
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            if not chunk:
                raise BrowserError(f"no answer from the browser (exit code {self._process.poll()})")
            self._left += chunk
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def open(self, url, *, width, height=900, dark=False, script=True):
        """Open a page in a tab of its own."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        mobile = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", session, width=width, height=height, mobile=mobile,
            deviceScaleFactor=2 if mobile else 1,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", session, value=True)
        # Not Page.loadEventFired: that of the empty page before it may come late.
        self.call("Page.setLifecycleEventsEnabled", session, enabled=True)
        loader = self.call("Page.navigate", session, url=url)["loaderId"]
        self.wait_for("Page.lifecycleEvent", session, name="load", loaderId=loader)
        return Tab(self, target, session)


class Tab:
    """One open page."""

    def __init__(self, browser, target, session):
        self._browser, self._target, self._session = browser, target, session

    def evaluate(self, expression):
        """The value of an expression in the page."""
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def said(self):
        """Everything that went to the console or the browser's log, exceptions included."""
        told = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [e["params"] for e in self._events() if e["method"] in told]

    def requested(self):
        """The addresses that the page asked for, itself included."""
        found = [e["params"] for e in self._events() if e["method"] == "Network.requestWillBeSent"]
        return [p["request"]["url"] for p in found]

    def screenshot(self, *, top=0, height=None, scale=1.0):
        """The page, or so many lines of it from `top` on, as PNG bytes."""
        size = self._browser.call("Page.getLayoutMetrics", self._session)["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": height or size["height"] - top,
            "scale": scale,
        }
        answer = self._browser.call(
            "Page.captureScreenshot", self._session, format="png", captureBeyondViewport=True, clip=clip
        )
        return b64decode(answer["data"])

    def close(self):
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def _events(self):
        return [e for e in self._browser.events if e.get("sessionId") == self._session]
