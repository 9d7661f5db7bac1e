"""`driverforge plan --registry` where the registry takes the connection and says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from driverforge_build.cli import run
from driverforge_build.fetch import web
from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix import load_matrix
from driverforge_core.errors import TemporaryFailure
from driverforge_oci.transport import Request, Response
from support.samples.synthetic import synthetic_lock


class Silent:
    """Stands for the network and the clock: each request takes as long as an answer is waited for."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.requests: list[str] = []

    def send(self, request: Request) -> Response:
        self.requests.append(request.url)
        self.sleep(web.TIMEOUT_S)
        raise TemporaryFailure("registry.site sends nothing", details=[request.url])

    def time(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_it_is_waited_for_once_however_many_cells_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("driverforge.lock.json").write_text(dump_lock(synthetic_lock(load_matrix())))
    silent = Silent()
    monkeypatch.setattr(web, "HttpxTransport", lambda *_, **__: silent)
    monkeypatch.setattr(web, "time", SimpleNamespace(time=silent.time, sleep=silent.sleep))
    words = ["plan", "--registry", "registry.site/nvidia", "--json"]
    assert run(words) == 75
    cells = json.loads(capsys.readouterr().out)["cells"]
    asked_about = [cell for cell in cells if "registry.site" in json.dumps(cell)]
    assert len(asked_about) > 1
    assert {cell["verdict"] for cell in asked_about} == {"unknown"}
    assert len(silent.requests) == 1
