"""The unit tier computes: a test that starts a process, forks or connects fails, whatever the reason."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any, NoReturn

import pytest


def _refuse(what: str) -> Any:
    def refused(*args: object, **kwargs: object) -> NoReturn:
        pytest.fail(
            f"a unit test must not {what}: move it to tests/tree, or pass the effect in", pytrace=True
        )

    return refused


@pytest.fixture(autouse=True)
def _no_side_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", _refuse("start a process"))
    monkeypatch.setattr(subprocess.Popen, "__del__", lambda self: None)
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
        monkeypatch.setattr(os, name, _refuse(f"call os.{name}"))
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, _refuse("open a connection"))
