"""runtime: what `driverctl runtime plan` and `apply` cost next to `nvidia-ctk runtime configure`.

The table also says what each writes and restarts. Both get the same containerd with the same file. Ours asks
the running daemon and its own program several times, starts an interpreter and proves that the daemon lives.
nvidia-ctk is a Go program that writes two files. So the ratio is the price of the proof. What our own code
costs is in the ratio to an interpreter that imports the same libraries and does nothing.

Where nvidia-ctk cannot be had, ours is compared with figures that were recorded in another run. Table and
JSON say so.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from bench.cpu import alternate
from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_core.errors import Unavailable
from support import process
from support.machines.runtimenode import RuntimeNode, open_node
from support.upstream import gotools, recordedctk

_SUITES = {"bookworm": "containerd 1.6", "sid": "containerd 2.1"}
_THEIRS = ("nvidia-ctk runtime configure --dry-run", "nvidia-ctk runtime configure")
# what driverctl needs beside its own modules
_LIBRARIES = (
    "import argparse, contextlib, dataclasses, hashlib, json, logging, socket, subprocess, tempfile\n"
    "import h2.config, h2.connection, h2.events, h2.exceptions, tomllib, tomlrt"
)
_RUNC = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def run(workshop: Workshop) -> tuple[Measure, ...]:
    runs = workshop.runs or 10
    try:
        ctk: Path | None = gotools.programs() / "nvidia-ctk"
    except Unavailable as error:
        workshop.note(f"nvidia-ctk cannot be had here, its figures are those of a record: {error.brief}")
        ctk = None
    suites = list(_SUITES.items())[: 1 if workshop.smallest else None]
    return tuple(measure for suite, name in suites for measure in _of(workshop, ctk, suite, name, runs))


def _of(workshop: Workshop, ctk: Path | None, suite: str, name: str, runs: int) -> tuple[Measure, ...]:
    with open_node("containerd", suite) as node:
        node.start(_RUNC)
        node.driverctl("apply")
        # as an image has it: the launcher's interpreter, no site packages searched
        code = "import sys; from driverctl.cli import main; sys.argv[0] = 'driverctl'; main()"
        ours = [sys.executable, "-c", code]
        theirs = _theirs(node, ctk)
        bare = [sys.executable, "-c", _LIBRARIES]
        commands = [[*ours, *node.words("plan")], [*ours, *node.words("apply")], bare]
        if theirs:
            commands += [[*theirs, "--dry-run"], theirs]
        and_theirs = ", nvidia-ctk --dry-run, nvidia-ctk" if theirs else ""
        workshop.say(
            f"{runs} times with {name}: plan, apply, the libraries{and_theirs}; "
            "the handlers are in force already"
        )
        restarts = node.restarts()
        plan, apply, libraries, *reference = (tuple(samples) for samples in alternate(commands, runs))
        workshop.note(f"{name}, again with nothing changed: {_again(node, restarts, ours, theirs)}")
    dry, configure = (
        _reference(f"{what}, {name}", samples)
        for what, samples in zip(_THEIRS, reference or [(), ()], strict=True)
    )
    ours_apply = Series(of="driverctl runtime apply, nothing to do", samples=apply)
    return (
        Measure(
            what=f"plan, {name}",
            unit="s CPU",
            ours=Series(of="driverctl runtime plan", samples=plan),
            reference=dry,
        ),
        Measure(what=f"apply, {name}", unit="s CPU", ours=ours_apply, reference=configure),
        Measure(
            what=f"apply against its libraries, {name}",
            unit="s CPU",
            ours=ours_apply,
            reference=Series(of="python that imports them", samples=libraries),
        ),
    )


def _theirs(node: RuntimeNode, ctk: Path | None) -> list[str]:
    """nvidia-ctk's command line over files of its own; [] where it cannot be had."""
    if ctk is None:
        return []
    folder = node.home / "theirs"
    folder.mkdir()
    (folder / "config.toml").write_text(_RUNC)
    return [
        str(ctk),
        *recordedctk.configure_words(folder / "config.toml", folder / "conf.d/99-nvidia.toml"),
    ]


def _reference(name: str, samples: tuple[float, ...]) -> Series:
    """What was measured now, else what was recorded under the same name."""
    of = name.partition(",")[0]
    if samples:
        recordedctk.record_figures(name, samples)
        return Series(of=of, samples=samples)
    return Series(of=of, samples=recordedctk.figures(name), recorded=True)


def _again(node: RuntimeNode, restarts: int, ours: list[str], theirs: list[str]) -> str:
    """Writes and restarts of one more run of each."""
    before = node.marks()
    process.run(*ours, *node.words("apply"))
    after = node.marks()
    written = sum(before.get(path) != mark for path, mark in after.items())
    did = f"driverctl wrote {written} files and restarted {node.restarts() - restarts} times"
    if not theirs:
        return did
    folder = node.home / "theirs"
    marks = _marks(folder)
    process.run(*theirs)
    again = _marks(folder)
    rewritten = sum(marks.get(path) != mark for path, mark in again.items())
    return f"{did}; nvidia-ctk wrote {rewritten} and leaves the restart to its caller"


def _marks(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path): json.dumps([path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()])
        for path in files
    }
