"""Shards as the CI systems want them: the matrix of a GitHub workflow, a child pipeline of GitLab."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from driverforge_build.plan.shards import Shard
from driverforge_core.errors import StorageFailed

SHARD_JOB = ".driverforge-shard"
"""The hidden job of a site's own GitLab file that each shard extends."""


def github_matrix(shards: Sequence[Shard], folder: Path | None) -> str:
    """The value of `strategy.matrix`, for fromJSON: {"include": [one object a job]} in one line."""
    return json.dumps({"include": [_entry(shard, folder) for shard in shards]}, separators=(",", ":"))


def gitlab_pipeline(shards: Sequence[Shard], folder: Path | None, include: str) -> str:
    """A child pipeline, for `trigger: include: artifact`. It is JSON, and so YAML.

    `include` is the file of the repository with the job SHARD_JOB. A pipeline without a job is an error to
    GitLab: where there are no shards, one says so.
    """
    if not shards:
        nothing = {"stage": "build", "script": ["echo nothing to build"]}
        return json.dumps({"stages": ["build"], "nothing-to-build": nothing}, indent=1)
    # their values are the job's name, which has 255 characters at most
    told = ("name", "shard", "arch", "cells")
    variables = [
        {
            f"DRIVERFORGE_{name.upper()}": value
            for name, value in _entry(shard, folder).items()
            if name in told
        }
        for shard in shards
    ]
    job = {"extends": SHARD_JOB, "parallel": {"matrix": variables}}
    return json.dumps({"include": [{"local": include}], "build": job}, indent=1)


def _entry(shard: Shard, folder: Path | None) -> dict[str, object]:
    """What a job knows of its shard. Its cells are too many for a variable: they are in a file."""
    return {
        "name": shard.name,
        "shard": f"{shard.number}/{shard.of}",
        "arch": shard.arch,
        **({"cells": str(list_of(shard, folder))} if folder else {}),
        "count": len(shard.cells),
        "minutes": max(1, round(shard.seconds / 60)),
    }


def list_of(shard: Shard, folder: Path) -> Path:
    """Where the list of a shard's cells is."""
    return folder / f"{shard.number}.txt"


def write_lists(shards: Sequence[Shard], folder: Path) -> None:
    """Write each shard's cells, an id a line. Raises StorageFailed.

    Lists of an earlier plan, which had more shards, are removed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.txt"):
            if stale.stem.isdecimal():
                stale.unlink()
        for shard in shards:
            lines = [f"# shard {shard.number} of {shard.of}", *(cell.key for cell in shard.cells)]
            list_of(shard, folder).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise StorageFailed(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            resolution="choose another folder with --shards",
        ) from error
