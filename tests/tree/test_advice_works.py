"""A command that a message names does not refuse what it is given: it is run here, up to the first mirror."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from support.samples.synthetic import synthetic_lock

ADVISED = re.compile(r"driverforge (?:lock|plan|generate|build|push) --.*?(?=   \(|; |$)", re.MULTILINE)
REFUSED = (64, 65, 78)

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in a folder of its own; exit status, and everything that was printed."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        status = cli.run(list(words))
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def follow(run: Run, advised: str, folder: Path) -> tuple[int, str]:
    """Do what a message says; `lock` asks nobody, and has a key that nobody signed with."""
    words = shlex.split(advised)[1:]
    if words[0] == "lock":
        (folder / "key.gpg").touch()
        mirror = "debian12=http://mirror.invalid/debian"
        words += [
            "--offline",
            "--cache-dir",
            str(folder / "cache"),
            "--keyring",
            "key.gpg",
            "--mirror",
            mirror,
        ]
    return run(*words)


@pytest.mark.parametrize(
    ("words", "lock", "commands"),
    [
        (("plan", "--select", "debian12-*"), None, 1),
        (("plan", "--select", "rhel9-*"), None, 1),
        (("plan", "--select", "debain*"), None, 1),
        (("plan", "--select", "rhel9-amd64-580*"), synthetic_lock(load_matrix()), 1),
        (("plan", "--select", "debian12-*-jit"), Lock(), 2),
        (("plan", "--select", "toolkit-*"), Lock(), 0),
        (("build", "--plan", "--select", "debian12-*"), Lock(), 2),
        (("generate", "--output", "o", "--select", "rhel9-*-jit"), Lock(), 1),
        (("generate", "--output", "o", "--select", "debian12-amd64-535*-jit"), Lock(), 1),
        (("generate", "--output", "o", "--select", "toolkit-*-amd64"), Lock(), 1),
        (("generate", "--output", "o"), Lock(), 1),
    ],
)
def test_no_command_that_is_named_refuses(
    run: Run, tmp_path: Path, words: tuple[str, ...], lock: Lock | None, commands: int
) -> None:
    if lock is not None:
        (tmp_path / "site.json").write_text(dump_lock(lock))
    status, told = run(*words, "--lock", "site.json")
    assert status in (0, 1, 64, 65), told
    advised = ADVISED.findall(told)
    for command in advised:
        status, said = follow(run, command, tmp_path)
        assert status not in REFUSED, f"{command}\n{said}"
    assert len(advised) == commands, told
