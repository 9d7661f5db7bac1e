"""What NVIDIA's own programs said, for comparisons where the programs cannot be had.

The records are in tests/cases/nvidia-programs. Tests that have the programs compare them with the records,
and write them anew where `UPDATE` is 1, so that a record is never a guess. `@HOME@` stands for the folder of
the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driverforge_core.errors import Unavailable
from support.process import run
from support.upstream import gotools

UPDATE = "DRIVERFORGE_UPDATE_GOLDEN"
FOLDER = Path(__file__).parents[2] / "cases/nvidia-programs"
_MEND = f"where the programs can be had, {UPDATE}=1 hack/test engine records them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """Files of `nvidia-ctk runtime configure --runtime=containerd`.

    They are the root file that it found, and both files as it left them.
    """

    before: str
    root: str
    drop_in: str


def configure(home: Path, config: Path, drop_in: Path, *, real: bool) -> None:
    """Change containerd's files as nvidia-ctk does: by the program, or by what it did to the same root file.

    Raises AssertionError where the program does something else than was recorded; Unavailable as
    `gotools.programs`, and where nothing was recorded for this root file.
    """
    before = _generic(config.read_text(), home)
    if not real:
        done = _recorded(before)
        config.write_text(_concrete(done.root, home))
        drop_in.parent.mkdir(exist_ok=True)
        drop_in.write_text(_concrete(done.drop_in, home))
        return
    program = gotools.programs() / "nvidia-ctk"
    run(program, *configure_words(config, drop_in))
    found = Configured(
        before=before, root=_generic(config.read_text(), home), drop_in=_generic(drop_in.read_text(), home)
    )
    if os.environ.get(UPDATE) == "1":
        _record(found)
    assert found == _recorded(before), "NVIDIA's program does not do what was recorded"


def configure_words(config: Path, drop_in: Path) -> list[str]:
    """The command line after the program's name."""
    return [
        "runtime",
        "configure",
        "--runtime=containerd",
        f"--config={config}",
        f"--drop-in-config={drop_in}",
    ]


def config(home: Path, file: Path) -> str:
    """What `nvidia-ctk config` prints of a config.toml; the record's answer where the program cannot be had.

    Raises AssertionError where the program says something else than was recorded; Unavailable where it cannot
    be had and nothing was recorded for this very file.
    """
    given = _generic(file.read_text(), home)
    try:
        program = gotools.programs() / "nvidia-ctk"
    except Unavailable:
        return _concrete(_said(given), home)
    found = _generic(run(program, "config", env={"NVIDIA_CTK_CONFIG_FILE_PATH": str(file)}).stdout, home)
    if os.environ.get(UPDATE) == "1":
        _write("config.json", {"given": given, "said": found})
    assert found == _said(given), "NVIDIA's program does not say what was recorded"
    return _concrete(found, home)


def _said(given: str) -> str:
    record = _read("config.json")
    if record.get("given") != given:
        raise Unavailable(
            "nothing was recorded of what nvidia-ctk says to this config.toml", resolution=_MEND
        )
    return str(record["said"])


def figures(name: str) -> tuple[float, ...]:
    """Recorded samples of `hack/bench`, in seconds of CPU. Raises Unavailable where there are none."""
    found = _read("figures.json")
    if name not in found:
        raise Unavailable(f"no figures of '{name}' were recorded", resolution=_MEND)
    return tuple(found[name])


def record_figures(name: str, samples: Sequence[float]) -> None:
    """Write samples down if `UPDATE` is 1."""
    if os.environ.get(UPDATE) == "1":
        _write("figures.json", {**_read("figures.json"), name: list(samples)})


def _recorded(before: str) -> Configured:
    rows: list[dict[str, str]] = _read("runtime-configure.json").get("containerd", [])
    for row in rows:
        if row["before"] == before:
            return Configured(**row)
    raise Unavailable("nothing was recorded of what nvidia-ctk does to this root file", resolution=_MEND)


def _record(found: Configured) -> None:
    rows = [
        row for row in _read("runtime-configure.json").get("containerd", []) if row["before"] != found.before
    ]
    row = {"before": found.before, "root": found.root, "drop_in": found.drop_in}
    _write("runtime-configure.json", {"containerd": sorted([*rows, row], key=lambda one: one["before"])})


def _read(file: str) -> dict[str, Any]:
    path = FOLDER / file
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return document


def _write(file: str, document: Mapping[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / file).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def _generic(text: str, home: Path) -> str:
    return text.replace(str(home), "@HOME@")


def _concrete(text: str, home: Path) -> str:
    return text.replace("@HOME@", str(home))
