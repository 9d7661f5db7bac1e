"""Terminal commands in lock files, matrices, file names and arguments are printed as text."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.engine.process import output
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import HeaderFact, Lock
from driverforge_core.errors import TemporaryFailure
from support.fakes.mockpath import MockPath
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import NEW, write_matrix

OWNED = "\x1b]0;owned\x07"
SHOWN = r"\x1b]0;owned\x07"
QUESTION = "include/linux/pci.h: arguments 4 pci_resize_resource"
CELL = f"debian12-amd64-535.261.03-{NEW}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock with a header's line, a signer and a date of this kind."""
    monkeypatch.chdir(tmp_path)
    write_matrix(tmp_path)
    common = package("linux-headers-6.1.0-53-common")
    whole = target(
        kernel(NEW, package(f"linux-headers-{NEW}"), common),
        drivers={"535.261.03": sample_driver()},
        header_facts={common.key: {QUESTION: HeaderFact(breaks=True, found=f"pci.h:2: {OWNED}")}},
    )
    signed = replace(whole.repositories[0], signed_by=(OWNED,), valid_until=OWNED)
    lock = Lock(targets={whole.key: replace(whole, repositories=(signed,))})
    (tmp_path / "l.json").write_text(dump_lock(lock))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("explain", CELL),
        ("generate", "--output", f"o{OWNED}", "--plan"),
        ("generate", "--output", f"o{OWNED}"),
        ("plan", "--select", f"x{OWNED}"),
        ("plan", "--json", f"--x{OWNED}"),
    ],
    ids=" ".join,
)
def test_a_terminals_commands_are_shown(
    site: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--matrix", "site.yaml", "--lock", "l.json")
    cli.run([words[0], *given, *words[1:]])
    told = "".join(capsys.readouterr())
    assert SHOWN in told
    assert OWNED not in told


@pytest.mark.parametrize(
    "command", [("plan", "--select", CELL), ("explain", CELL)], ids=lambda command: command[0]
)
def test_json_has_no_control_characters_at_all(
    site: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    lock = site / "l.json"
    # U+009B begins a sequence as ESC [ does, and JSON may have it as it is
    lock.write_text(lock.read_text().replace("pci.h:2: ", "pci.h:2: \x9b31m\x7f"))
    cli.run([*command, "--json", "--matrix", "site.yaml", "--lock", "l.json"])
    told = capsys.readouterr().out
    assert r"\u009b31m" in told
    assert all(char.isprintable() or char == "\n" for char in told)


def test_a_file_name_that_is_no_utf8_ends_in_a_message(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", "--lock", os.fsdecode(b"\xff\x1b[2J.json")]) == 65
    told = capsys.readouterr().err
    assert r"\udcff\x1b[2J.json" in told


def test_a_docker_command_that_never_ends_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mock = MockPath(tmp_path / "bin")
    mock.add("docker", "exec tail -f /dev/null")
    monkeypatch.setenv("PATH", f"{mock.folder}:/usr/bin:/bin")
    with pytest.raises(TemporaryFailure, match=r"docker says nothing for 0\.2 s") as caught:
        output(["docker", "version"], patience=0.2)
    assert caught.value.details == ("command: docker version",)
