"""A real browser, without a window."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.parts import require
from tests.support.waiting import eventually

ANSWER_SECONDS = 60.0
DRAWN = """document.readyState === 'complete' && location.href !== 'about:blank' &&
  document.getElementById('state')?.textContent !== 'connecting'"""
COMMON = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    # What a user's browser does beside showing a page: a process for the next one, updates ...
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
    "--disable-features=SpareRendererForSitePerProcess,Translate,OptimizationHints,MediaRouter",
)


def rendered(browser: Browser, url: str, drawn: str = "", *, expected: str = "") -> str:
    """The document after its scripts ran, in a tab of its own: once an element is there that the
    selector ``drawn`` finds, since a canvas is drawn with a frame that may come later. Fails on an
    error in the console, but for those that contain ``expected``."""
    browser.renew()
    browser.open(url)
    browser.settle()
    if drawn:
        browser.until(f"document.querySelector({drawn!r}) !== null", f"{drawn} is drawn")
    document = str(browser.run("document.documentElement.outerHTML"))
    wrong = [one for one in browser.complaints if not expected or expected not in one]
    assert wrong == [], "errors in the console"
    return document


class Browser:
    """One tab of a real Chromium, which is driven through its debugging pipe."""

    def __init__(self, folder: Path, *, width: int = 1280, height: int = 900) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # It reads from its third descriptor, and writes to its fourth.
        command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash"]
        command += [require("chromium"), *COMMON, f"--user-data-dir={folder}"]
        command += ["--remote-debugging-pipe", f"--window-size={width},{height}"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._buffer, self._number, self._session = b"", 0, ""
        self._size, self._profile = (width, height), ""
        self._trace: list[dict[str, Any]] = []
        self._traced = False
        self.complaints: list[str] = []
        """Errors in the console."""
        self.requests: list[str] = []
        """URLs that were asked for."""
        self.received = 0
        """Bytes of answers, as they were sent."""
        self._loading: set[str] = set()
        self.renew()

    def renew(self) -> None:
        """Another tab in the place of the one before, with nothing of what was stored, allowed,
        emulated or noted there."""
        self._session, before = "", self._profile
        self._profile = self._ask("Target.createBrowserContext")["browserContextId"]
        width, height = self._size
        tab = self._ask("Target.createTarget", url="about:blank", width=width, height=height,
                        browserContextId=self._profile)["targetId"]  # fmt: skip
        if before:
            self._ask("Target.disposeBrowserContext", browserContextId=before)
        told = self._ask("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = told["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self._ask("Page.bringToFront")
        self.complaints.clear()
        self.requests.clear()
        self._loading.clear()
        self.received = 0

    def open(self, url: str) -> None:
        """Go there."""
        self._ask("Page.navigate", url=url)

    def open_beside(self, url: str) -> None:
        """Another tab of the same user, which is not driven."""
        self._ask("Target.createTarget", url=url, background=True,
                  browserContextId=self._profile, session=False)  # fmt: skip

    def titles(self) -> list[str]:
        """Of all tabs of this user."""
        told = self._ask("Target.getTargets", session=False)["targetInfos"]
        mine = (one for one in told if one.get("browserContextId") == self._profile)
        return [one["title"] for one in mine if one["type"] == "page"]

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript, which may be a promise."""
        told = self._ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def traced(self, script: str, categories: tuple[str, ...]) -> tuple[Any, list[dict[str, Any]]]:
        """The value of an expression, as of ``run``, and what the browser traced meanwhile."""
        self._trace.clear()
        self._ask("Tracing.start", transferMode="ReportEvents",
                  traceConfig={"includedCategories": list(categories)})  # fmt: skip
        value = self.run(script)
        self._traced = False
        self._ask("Tracing.end")
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._traced:
            told = self._next(deadline)
            self._note(told.get("method"), told.get("params", {}))
        return value, list(self._trace)

    def until(self, script: str, what: str, seconds: float = 20.0) -> Any:
        """Wait until an expression is true."""
        return eventually(lambda: self.run(script), what, seconds)

    def settle(self) -> None:
        """Wait until all that was asked for has been answered, but for streams, which go on."""
        looks = 0
        deadline = time.monotonic() + ANSWER_SECONDS
        while looks < 5:
            assert time.monotonic() < deadline, f"still loading: {self._loading}"
            time.sleep(0.1)
            ready = self.run(
                "document.readyState === 'complete' && location.href !== 'about:blank'"
            )
            looks = looks + 1 if ready and not self._loading else 0

    def begin_with(self, script: str) -> None:
        """What runs in each document before its own scripts."""
        self._ask("Page.addScriptToEvaluateOnNewDocument", source=script)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key of the keyboard, by its name and its number."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self._ask("Input.dispatchKeyEvent", **about, **down)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def allow(self, *permissions: str) -> None:
        """What a user would be asked."""
        self._ask("Browser.grantPermissions", permissions=list(permissions),
                  browserContextId=self._profile, session=False)  # fmt: skip

    def resize(self, width: int, height: int) -> None:
        """The size of a phone, say."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        self._ask("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip

    def picture(self, *, of: tuple[float, float, float, float] | None = None) -> bytes:
        """What is seen now, as PNG, without scroll bars; ``of`` is a part of the whole document
        (left, top, width, height), which may be out of sight."""
        self._ask("Emulation.setScrollbarsHidden", hidden=True)
        more: dict[str, Any] = {}
        if of is not None:
            x, y, width, height = of
            clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
            more = {"clip": clip, "captureBeyondViewport": True}
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png", **more)["data"])

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, *, session: bool = True, **params: Any) -> Any:
        self._number += 1
        number = self._number
        about = {"id": number, "method": method, "params": params}
        if session and self._session:
            about["sessionId"] = self._session
        os.write(self._out, json.dumps(about).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            told = self._next(deadline)
            if told.get("id") == number:
                assert "error" not in told, (method, told["error"])
                return told["result"]
            if told.get("sessionId", "") == self._session:
                self._note(told.get("method"), told.get("params", {}))

    def _note(self, method: str | None, params: Any) -> None:
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.complaints.append(" ".join(str(one.get("value", one)) for one in params["args"]))
        if method == "Tracing.dataCollected":
            self._trace.extend(params["value"])
        if method == "Tracing.tracingComplete":
            self._traced = True
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
            if params.get("type") != "EventSource":
                self._loading.add(params["requestId"])
        if method in ("Network.loadingFinished", "Network.loadingFailed"):
            self._loading.discard(params["requestId"])
        if method == "Network.dataReceived":
            self.received += params["encodedDataLength"]

    def _next(self, deadline: float) -> Any:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._in], [], [], max(0.0, left))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
