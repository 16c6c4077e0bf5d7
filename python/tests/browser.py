# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A headless Chromium that tests can ask and act on, through the pipe of its debugger. No packages,
no port.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Chromium reads commands from descriptor 3 and answers on 4.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    " os.execvp(sys.argv[3], sys.argv[3:])"
)
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
# A machine may be busy.
PATIENCE_S = 240


def program() -> str | None:
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


class Browser:
    """One page. `complaints` are the errors and warnings of its console."""

    def __init__(self, directory: Path) -> None:
        chromium = program()
        assert chromium is not None
        ours, theirs = high_pipe(), high_pipe()
        command = [sys.executable, "-c", LAUNCH, str(ours[0]), str(theirs[1]), chromium, *OPTIONS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={directory / 'profile'}", "about:blank"],
            pass_fds=(ours[0], theirs[1]), env={**os.environ, "HOME": str(directory)},
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self.write, self.read = ours[1], theirs[0]
        self.rest = b""
        self.last = 0
        self.session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.write)
        os.close(self.read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the debugger's protocol, and its answer."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.note(answer)

    def receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self.read, 1 << 16)
            assert piece, "the browser has ended"
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def note(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = found["exceptionDetails"]
                self.complaints.append(
                    details.get("exception", {}).get("description", details["text"])
                )
            case "Runtime.consoleAPICalled" if found["type"] in ("error", "warning", "assert"):
                self.complaints.append(
                    " ".join(str(a.get("value", a.get("description"))) for a in found["args"])
                )
            case "Log.entryAdded" if found["entry"]["level"] in ("error", "warning"):
                self.complaints.append(found["entry"]["text"])

    def ask(self, expression: str) -> Any:
        """The value of an expression; of a promise, what it promised."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < end, (
                f"never came true: {expression}; complaints: {self.complaints}"
            )
            time.sleep(0.05)

    def open(self, page: Path, width: int = 1100, height: int = 900) -> None:
        self.visit(page.absolute().as_uri(), width, height)

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def visit(self, url: str, width: int, height: int) -> None:
        self.size(width, height)
        self.call("Page.navigate", url=url)
        self.wait("window.klogger !== undefined")
        self.settle()

    def settle(self) -> None:
        """Until what was asked for is on the screen."""
        self.ask(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
            " setTimeout(done, 0))))"
        )

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.settle()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def scheme(self, name: str) -> None:
        self.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
        )
        self.settle()

    def picture(self, to: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, to: Path) -> None:
        to.write_bytes(
            base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])
        )


def high_pipe() -> tuple[int, int]:
    """A pipe whose descriptors are not 3 or 4."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends[0], ends[1]
