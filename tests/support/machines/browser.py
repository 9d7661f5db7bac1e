"""Debian's Chromium without a window, driven by the DevTools protocol over a pipe (--remote-debugging-pipe).

https://chromedevtools.github.io/devtools-protocol/. No library and no port: a message is JSON and a zero
byte. The browser looks up no name: what asks for anything but a file or the loopback, fails and is seen.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driverforge_core.errors import CommandFailed, TemporaryFailure
from support import process

_WAIT = 60.0  # seconds for one answer: a page of 20,000 cells on a busy machine
Message = dict[str, Any]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser while the block runs, its profile and log in `folder`. Raises Unavailable without one."""
    process.require("chromium", "setpriv")
    commands, answers = os.pipe(), os.pipe()
    words = [
        "--headless",
        # the tests' user may be root, and a container's kernel may refuse the sandbox's namespaces
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={folder / 'profile'}",
        "--remote-debugging-pipe",
    ]
    # the protocol's descriptors are 3 and 4
    moved = f'exec chromium "$@" 3</proc/self/fd/{commands[0]} 4>/proc/self/fd/{answers[1]}'
    child = process.start(
        ["sh", "-c", moved, "sh", *words],
        log=folder / "chromium.log",
        env={"HOME": str(folder)},
        pass_fds=(commands[0], answers[1]),
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        yield Browser(_to=commands[1], _from=answers[0])
    finally:
        process.stop(child)
        os.close(commands[1])
        os.close(answers[0])


@dataclass(kw_only=True)
class Browser:
    """One browser. `heard` are the events that no call has waited for, in their order."""

    _to: int
    _from: int
    _number: int = 0
    _buffer: bytearray = field(default_factory=bytearray)
    heard: list[Message] = field(default_factory=list)

    def call(self, method: str, session: str = "", **parameters: object) -> Message:
        """The result of a method of the protocol. Raises CommandFailed with what the browser says."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(method)
            if answer.get("id") == self._number:
                break
            self.heard.append(answer)
        if "error" in answer:
            raise CommandFailed(f"{method}: {answer['error']['message']}")
        result: Message = answer["result"]
        return result

    def wait(self, method: str, session: str) -> Message:
        """The first event of that name since the last wait for one."""
        while True:
            for number, event in enumerate(self.heard):
                if event["method"] == method and event.get("sessionId") == session:
                    return self.heard.pop(number)
            self.heard.append(self._read(method))

    def _read(self, waiting_for: str) -> Message:
        end = time.monotonic() + _WAIT
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TemporaryFailure(f"the browser did not answer within {_WAIT:.0f} s: {waiting_for}")
            read = os.read(self._from, 1 << 16)
            if not read:
                raise CommandFailed("the browser ended; its log is chromium.log")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: Message = json.loads(text)
        return message

    def close_tabs(self) -> None:
        """Close every page, and forget what they said."""
        for target in self.call("Target.getTargets")["targetInfos"]:
            if target["type"] == "page":
                self.call("Target.closeTarget", targetId=target["targetId"])
        self.heard.clear()

    def open(
        self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True
    ) -> Tab:
        """A page in a tab of its own, loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(browser=self, session=session)
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            tab.call(f"{domain}.enable")
        tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[colours])
        tab.call("Emulation.setScriptExecutionDisabled", value=not script)
        tab.go(address)
        return tab


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    browser: Browser
    session: str

    def call(self, method: str, **parameters: object) -> Message:
        return self.browser.call(method, self.session, **parameters)

    def go(self, address: str) -> None:
        """Load a page; what it does until it is loaded is done then."""
        self.call("Page.navigate", url=address)
        self.browser.wait("Page.loadEventFired", self.session)

    def run(self, code: str) -> Any:
        """The value of an expression in the page. Raises CommandFailed with the exception of a script.

        It runs where the page's own policy does not hold, and also where the page's scripts may not run.
        """
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise CommandFailed(f"script: {json.dumps(result['exceptionDetails'])[:2000]}")
        return result["result"].get("value")

    def until(self, code: str) -> None:
        """Wait until an expression is true in the page. Raises TemporaryFailure."""
        wait = (
            f"(async () => {{ while (!({code})) await new Promise(requestAnimationFrame); return true; }})()"
        )
        self.run(wait)

    def type(self, text: str) -> None:
        """Text into what has the focus, as a paste would put it there."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """The mouse, on the middle of the first element that a selector names."""
        x, y = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, key: str, *, text: str = "") -> None:
        """A key of the keyboard, pressed and let go."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text, windowsVirtualKeyCode=code
            )

    def requested(self) -> list[str]:
        """Every address that was asked for. What the page's own policy refuses is tried and never sent."""
        refused = {
            event["params"]["requestId"]
            for event in self._heard("Network.loadingFailed")
            if event["params"].get("blockedReason") == "csp"
        }
        sent = (event["params"] for event in self._heard("Network.requestWillBeSent"))
        return [one["request"]["url"] for one in sent if one["requestId"] not in refused]

    def complaints(self) -> list[str]:
        """What the browser has to say of the page: exceptions, lines of its console, refused scripts."""
        told = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Audits.issueAdded")
        return [json.dumps(event["params"]) for name in told for event in self._heard(name)]

    def _heard(self, method: str) -> list[Message]:
        self.run("1")  # what was sent before has come by then
        mine = (event for event in self.browser.heard if event.get("sessionId") == self.session)
        return [event for event in mine if event["method"] == method]
