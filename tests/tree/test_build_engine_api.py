"""What the docker engine's API may answer beside what was hoped for: the SDK's errors become ours, and cost
one cell, not the run.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driverforge_build.app.runner import HowToRun, Result, build_all
from driverforge_build.commands.shared import adapters
from driverforge_build.engine.buildx import Buildx
from driverforge_build.ports import BuildJob
from driverforge_core.errors import CommandFailed, Unavailable
from support.fakes.engineapi import engine_api
from support.fakes.mockpath import MockPath

IMAGE = {"Id": "sha256:1", "Size": 1, "RootFS": {}, "Config": {"Labels": {}}}


@pytest.fixture(autouse=True)
def empty_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def test_an_engine_that_fails_for_one_cell_leaves_the_others_their_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock = MockPath(tmp_path / "bin")
    mock.add("docker")
    monkeypatch.setenv("PATH", f"{mock.folder}:/usr/bin:/bin")
    jobs = [
        BuildJob(
            cell=name,
            group=name,
            target=name,
            bake_file=tmp_path / "docker-bake.json",
            reference=f"localhost/driver:{name}",
            log=tmp_path / f"{name}.log",
            network="default",
        )
        for name in ("bad", "good")
    ]

    def answer(path: str) -> tuple[int, object]:
        return (
            (500, {"message": "the store is broken"})
            if "bad" in path
            else (404, {"message": "no such image"})
        )

    with engine_api(answer) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        how = HowToRun(workers=1, keep_going=True)
        bad, good = build_all([Buildx()], jobs, how, lambda *_: None)
    assert (bad.result, good.result) == (Result.FAILED, Result.BUILT)
    assert isinstance(bad.error, CommandFailed)
    assert "the store is broken" in bad.error.details[0]


def test_a_credential_helper_that_is_not_installed_is_named(
    empty_configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_configuration.write_text(json.dumps({"credsStore": "not-installed"}))
    with engine_api(lambda path: (201, {}) if "/tag" in path else (200, IMAGE)) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
        with pytest.raises(
            CommandFailed, match="docker-credential-not-installed cannot be started"
        ) as caught:
            adapters.engine().push("localhost/driver:1", "registry.site/driver:1", lambda _: None)
    assert caught.value.brief.startswith(f"{empty_configuration}: credsStore: ")


def test_an_engine_that_hangs_up_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_api(lambda _: (0, None)) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        with pytest.raises(Unavailable, match="stopped answering"):
            Buildx().inspect("localhost/driver:1")
