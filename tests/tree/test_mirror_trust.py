"""Lists that came with an archive: every command reads them as the archive, once --verifier accepts them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from driverforge_build.cli import run
from support.jsonschemas import check_document

EMPTY = {"schema": 1, "chart": None, "inputs": {}, "images": [], "left_out": [], "warnings": []}
TO = ("--to", "registry.site/kse")
COMMANDS = {
    "explain": ("explain", "driver"),
    "rewrite": ("rewrite", *TO, "--out", "out"),
    "packages": ("packages", *TO, "--out", "out"),
    "verify": ("verify", *TO),
    "verify --deep": ("verify", "--deep", *TO),
    "inventory": ("inventory", *TO),
    "copy": ("copy", *TO),
    "copy --to-archive": ("copy", "--to-archive", "another"),
    "prune": ("prune", *TO, "--dry-run"),
    "prune --archives": ("prune", "--archives", "."),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two lists and a signature; what is read of a list is seen by the error that it is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DRIVERFORGE_VERIFIER", raising=False)
    for name in ("gpu.list.json", "mirror.lock.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "gpu.list.json.sig").write_text("c2lnbmVk\n")
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_an_archives_list_is_read_if_the_verifier_accepts_it(
    words: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*given: str) -> str:
        assert run(["mirror", *words, "--mirror-lock", "gpu.list.json", *given]) == 65
        return capsys.readouterr().err

    refused = "gpu.list.json has no signature that is accepted"
    was_read = "gpu.list.json is no list of an archive"
    assert refused in told("--verifier", "false")
    assert was_read in told("--verifier", "true")
    assert was_read in told()
    (folder / "gpu.list.json.sig").unlink()
    assert refused in told("--verifier", "true")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_list_of_ones_own_has_no_signature(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline's verifier is for what came; one that is written here would be believed to have judged."""
    if "--archives" not in words:
        assert run(["mirror", *words, "--verifier", "true"]) == 64
        assert "--verifier is for what came with an archive" in capsys.readouterr().err
    monkeypatch.setenv("DRIVERFORGE_VERIFIER", "false")
    assert run(["mirror", *words]) == 65
    assert "mirror.lock.json is no list of a mirror" in capsys.readouterr().err


def test_an_old_list_that_came_with_an_archive_is_verified_too(capsys: pytest.CaptureFixture[str]) -> None:
    prune = ["mirror", "prune", *TO, "--dry-run", "--drop", "gpu.list.json"]
    Path("mirror.lock.json").write_text(json.dumps(EMPTY))
    assert run([*prune, "--verifier", "false"]) == 65
    assert "gpu.list.json has no signature that is accepted" in capsys.readouterr().err


def test_each_volume_of_an_archive_is_held_against_its_list(capsys: pytest.CaptureFixture[str]) -> None:
    volumes = [
        {"name": f"gpu.tar.{state}", "size": 1, "sha256": hashlib.sha256(b"a").hexdigest()}
        for state in ("held", "damaged", "absent")
    ]
    archive = {"schema": 1, "lock": EMPTY, "volumes": volumes, "parts": {}, "left_out": {}}
    Path("gpu.list.json").write_text(json.dumps(archive))
    Path("gpu.tar.held").write_bytes(b"a")
    Path("gpu.tar.damaged").write_bytes(b"b")
    assert run(["mirror", "verify", "--archive", "gpu", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    check_document("mirror-volumes", document)
    assert all(volume["name"].endswith(volume["state"]) for volume in document["volumes"])


def test_an_archive_whose_list_is_not_accepted_counts_as_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No copy of that site would read it, and an older one that is signed would go for it."""
    Path("mirror.lock.json").write_text(json.dumps(EMPTY))
    archive = {"schema": 1, "lock": EMPTY, "volumes": [], "parts": {}, "left_out": {}}
    Path("gpu.list.json").write_text(json.dumps(archive))
    prune = ["mirror", "prune", "--archives", ".", "--dry-run"]
    for verifier, judged in (("true", "delete  gpu"), ("false", "keep    gpu")):
        assert run([*prune, "--verifier", verifier]) == 0
        assert capsys.readouterr().out.startswith(judged)
