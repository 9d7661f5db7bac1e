"""The unit tier's guard holds: a test that reaches outside fails at once."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest


def test_a_unit_test_that_reaches_outside_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="start a process"):
        subprocess.run(["true"], check=True)
    with pytest.raises(pytest.fail.Exception, match=r"os\.fork"):
        os.fork()
    with socket.socket() as client, pytest.raises(pytest.fail.Exception, match="open a connection"):
        client.connect(("127.0.0.1", 9))
