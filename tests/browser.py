"""A headless Chromium, driven over its DevTools pipe with the standard library alone."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 60.0  # a loaded machine is slow to start one


def find_chromium() -> str | None:
    """Name or path of Chromium; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab of a separate browser with a temporary profile.

    Everything that the page says on its console, every error in it and every request that leaves it
    is kept in `said`, `errors` and `requests`.
    """

    def __init__(self, program: str) -> None:
        self.said: list[str] = []
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Chromium reads from 3 and writes to 4; both are free for that once these are elsewhere.
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out)]

        def arrange() -> None:
            os.dup2(moved[0], 3)
            os.dup2(moved[1], 4)

        self._process = subprocess.Popen(
            [
                *(program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox"),
                *("--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
                *("--disable-background-networking", "--disable-component-update"),
                *("--force-color-profile=srgb", "--hide-scrollbars", "--disable-extensions"),
                *(f"--user-data-dir={self._profile.name}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4, *moved),
            preexec_fn=arrange,
            start_new_session=True,  # its many processes end together
        )
        for end in (theirs_in, theirs_out, *moved):
            os.close(end)
        self._in, self._out = ours_in, ours_out
        self._left = b""
        self._number = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._profile.cleanup()

    def open(
        self, url: str, *, width: int = 1200, height: int = 900, scheme: str = "light"
    ) -> None:
        """Open a page on a screen of this size, in the colour scheme "light" or "dark"."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1 if width > 600 else 2,
            mobile=width <= 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        self._call("Emulation.setEmulatedMedia", features=features)
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = _SECONDS) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"in vain: {condition}"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Press keys by their names: "Tab", "ArrowLeft", "a"."""
        for key in keys:
            text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else None)
            code = _CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
            common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            down = {**common, "type": "keyDown", **({"text": text} if text else {})}
            self._call("Input.dispatchKeyEvent", **down)
            self._call("Input.dispatchKeyEvent", **common, type="keyUp")

    def type(self, text: str) -> None:
        """Type text into the element that has the focus."""
        self._call("Input.insertText", text=text)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply["error"]
                result: dict[str, Any] = reply["result"]
                return result
            self._note(reply.get("method", ""), reply.get("params", {}))

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(one.get("value")) for one in about["args"]))
        elif event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        elif event == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {about['message']}")
            self._call("Page.handleJavaScriptDialog", accept=False)
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has ended"
            self._left += piece
        message, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}
_CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
