"""runtime: what `driverctl runtime plan` and `apply` cost next to `nvidia-ctk runtime configure`, and what each writes and restarts.

Both get the same containerd with the same file. Ours asks the running daemon and its own program several times, starts an interpreter
and proves that the daemon lives; nvidia-ctk is a Go program that writes two files. So the ratio is the price of the proof.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from bench_cpu import alternate
from bench_result import Measure, Series
from bench_workshop import Workshop

from support import gotools, process
from support.runtimenode import RuntimeNode, open_node

_SUITES = {"bookworm": "containerd 1.6", "sid": "containerd 2.1"}
_RUNC = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def run(workshop: Workshop) -> tuple[Measure, ...]:
    runs = workshop.runs or 10
    ctk = gotools.programs() / "nvidia-ctk"
    return tuple(
        measure for suite, name in _SUITES.items() for measure in _of(workshop, ctk, suite, name, runs)
    )


def _of(workshop: Workshop, ctk: Path, suite: str, name: str, runs: int) -> tuple[Measure, ...]:
    with open_node("containerd", suite) as node:
        node.start(_RUNC)
        node.driverctl("apply")
        # as an image has it: the launcher's interpreter, no site packages searched
        code = "import sys; from driverforge_node.cli import main; sys.argv[0] = 'driverctl'; main()"
        ours = [sys.executable, "-c", code]
        theirs = [
            str(ctk),
            "runtime",
            "configure",
            "--runtime=containerd",
            f"--config={node.home}/theirs/config.toml",
        ]
        theirs += [f"--drop-in-config={node.home}/theirs/conf.d/99-nvidia.toml"]
        (node.home / "theirs").mkdir()
        (node.home / "theirs/config.toml").write_text(_RUNC)
        commands = [
            [*ours, *node.words("plan")],
            [*ours, *node.words("apply")],
            [*theirs, "--dry-run"],
            theirs,
        ]
        workshop.say(
            f"{runs} times with {name}: plan, apply, nvidia-ctk --dry-run, nvidia-ctk; the handlers are in force already"
        )
        restarts = node.restarts()
        plan, apply, dry, configure = (tuple(samples) for samples in alternate(commands, runs))
        workshop.note(f"{name}, again with nothing changed: {_again(node, restarts, ours, theirs)}")
    return (
        Measure(what=f"plan, {name}", unit="s CPU", ours=Series(of="driverctl runtime plan", samples=plan),
            reference=Series(of="nvidia-ctk runtime configure --dry-run", samples=dry)),
        Measure(what=f"apply, {name}", unit="s CPU", ours=Series(of="driverctl runtime apply, nothing to do", samples=apply),
            reference=Series(of="nvidia-ctk runtime configure", samples=configure)),
    )  # fmt: skip


def _again(node: RuntimeNode, restarts: int, ours: list[str], theirs: list[str]) -> str:
    """Writes and restarts of one more run of each."""
    before = node.marks()
    process.run(*ours, *node.words("apply"))
    after = node.marks()
    written = sum(before.get(path) != mark for path, mark in after.items())
    folder = node.home / "theirs"
    marks = _marks(folder)
    process.run(*theirs)
    again = _marks(folder)
    rewritten = sum(marks.get(path) != mark for path, mark in again.items())
    theirs_said = f"nvidia-ctk wrote {rewritten} and leaves the restart to its caller"
    return f"driverctl wrote {written} files and restarted {node.restarts() - restarts} times; {theirs_said}"


def _marks(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path): json.dumps([path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()])
        for path in files
    }
