"""`driverforge push --plan`: the tags, without an engine and without a registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from driverforge_build.cli import cli, run
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from support.jsonschemas import check_document
from support.samples.synthetic import synthetic_lock

JIT = "debian12-amd64-535.261.03-jit"


@pytest.mark.parametrize(
    "words", [["push"], ["plan"], ["build"], ["explain", JIT]], ids=lambda words: words[0]
)
def test_a_registry_with_a_scheme_that_no_registry_has_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--registry", "docker://registry.site/nvidia"]) == 64
    assert "has another scheme than http:// and https://" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "generate", "build", "push"])
def test_a_base_image_is_as_strict_as_in_a_matrix(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--base", "debian12=registry.site/debian:$TAG"]) == 64
    assert "'registry.site/debian:$TAG' is not an image reference" in capsys.readouterr().err


def test_the_plan_of_a_push_as_text_and_as_json(tmp_path: Path) -> None:
    made_up = synthetic_lock(load_matrix()).targets["debian12-amd64"]
    file = tmp_path / "l.json"
    file.write_text(dump_lock(Lock(targets={made_up.key: made_up})))
    words = ["push", "--lock", str(file), "--select", JIT, "--registry", "registry.site/nvidia", "--plan"]
    text = CliRunner().invoke(cli, words, catch_exceptions=False).output
    document = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).output)
    check_document("push-plan", document)
    immutable, alias = document["tags"][JIT]
    assert document["repository"] == "registry.site/nvidia/driver"
    assert immutable.startswith("535.261.03-debian12-r")
    assert alias == "535.261.03-debian12"
    assert text == f"{JIT}: registry.site/nvidia/driver:{immutable}, alias {alias}\n"
    words[words.index("registry.site/nvidia")] = "http://registry.site/nvidia/"
    assert CliRunner().invoke(cli, words, catch_exceptions=False).output == text


def test_a_cell_that_cannot_be_had_is_told_with_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "l.json"
    file.write_text(dump_lock(Lock(targets={})))
    assert (
        run(["push", "--lock", str(file), "--select", JIT, "--registry", "registry.site/nvidia", "--plan"])
        == 1
    )
    assert f"{JIT}  unknown  " in capsys.readouterr().err
