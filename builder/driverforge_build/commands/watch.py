"""`driverforge watch`: what is new since the lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.advice import Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.lastread import of_cache, read_state, state_of_all
from driverforge_build.commands.shared.output import say

if TYPE_CHECKING:
    from driverforge_build.app.watch import News
    from driverforge_build.documents.runs import WatchDocument
    from driverforge_build.nvidia.releases import Release


@click.command("watch")
@inputs.selection_options()
@options.mirror_option
@options.keyring_option
@options.entitlement_option
@options.cache_option
@options.offline_option
@options.accept_expired_option
@options.advisories_option
@options.json_option
def command(
    *,
    selection: Selection,
    mirrors: dict[str, str],
    keyrings: list[tuple[str, Path]],
    entitlement: Path | None,
    cache_dir: Path | None,
    offline: bool,
    accept_expired: bool,
    advisories: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Tell what is new since the lock: kernels, drivers, branches, ends of life.

    The repositories of the locked systems and NVIDIA's list of releases are read; matrix and lock stay as
    they are. With --advisories also what is known of the locked drivers, new or not.

    Exit status: 0 where nothing is new; 1 where something is; 75 where nothing new was found and somebody
    did not answer; others as `driverforge --help` has them.
    """
    from driverforge_build.app.watch import watch
    from driverforge_build.nvidia.advisories import read_advisories

    known = read_advisories(advisories)
    told = adapters.discovery(mirrors=mirrors, keyrings=keyrings, entitlement=entitlement)
    settings = replace(told, accept_expired=accept_expired)
    with adapters.mirrors(cache_dir, offline=offline, as_json=as_json) as downloads:
        news = watch(selection, settings, downloads, known)
    if as_json:
        say(json.dumps(_document(selection.given.lock, news), indent=1))
    else:
        for line in _lines(news):
            say(line)
        for error in (*news.problems.values(), *news.unanswered):
            say(error.render(), err=True)
    return 1 if news else 75 if news.unanswered else 0


def _lines(news: News) -> Iterator[str]:
    from driverforge_build.nvidia.advisories import told
    from driverforge_build.nvidia.releases import OPEN_ONLY_FROM

    for key, target in news.targets.items():
        for release in target.kernels:
            yield f"{key}: kernel {release} is new"
        for release in target.gone:
            yield f"{key}: kernel {release} is gone"
        for release, version in target.modules:
            yield f"{key}: finished modules of {version} for kernel {release} are new"
    for what in news.problems:
        yield f"{what}: the repositories do not have it as the lock does"
    for driver in news.drivers:
        yield f"driver {_told(driver.release)} is new: the matrix has {driver.known or 'none yet'}"
    for branch in news.branches:
        only = "; open modules only" if branch.version.branch >= OPEN_ONLY_FROM else ""
        yield f"branch {branch.branch} is new: {_told(branch)}{only}"
    if news.rows:
        yield "to have them, in a matrix of yours (look up module types, GPUs and CUDA at NVIDIA's):"
        yield from news.rows.splitlines()
    for ended in news.ended:
        yield f"branch {ended.id} has ended: {ended.eol}"
    for version, found in news.vulnerable.items():
        yield told(version, found)
    since = f"since {news.since}" if news.since else "since the lock"
    if not news:
        yield f"nothing is new {since}" + (", as far as could be asked" if news.unanswered else "")
    if known := of_cache(news.reads):
        yield f"nobody was asked: this is {known}"


def _told(release: Release) -> str:
    day = f" of {release.date}" if release.date else ""
    return f"{release.version}{day}" + (f" ({release.kind})" if release.kind else "")


def _document(path: Path, news: News) -> WatchDocument:
    from driverforge_build.documents.failures import failure
    from driverforge_build.nvidia.releases import OPEN_ONLY_FROM

    return {
        "schema": 1,
        "lock": str(path),
        "since": news.since,
        "new": bool(news),
        "targets": {
            key: {
                "kernels": list(target.kernels),
                "gone": list(target.gone),
                "modules": [{"kernel": release, "driver": version} for release, version in target.modules],
                "state": state_of_all(news.last_read[key].values()),
                "read": {suite: read_state(one) for suite, one in news.last_read[key].items()},
            }
            for key, target in news.targets.items()
        },
        "problems": {what: failure(error) for what, error in news.problems.items()},
        "drivers": [
            {
                "branch": one.release.branch,
                "version": one.release.version.text,
                "date": one.release.date,
                "type": one.release.kind,
                "known": one.known,
            }
            for one in news.drivers
        ],
        "branches": [
            {
                "branch": one.branch,
                "version": one.version.text,
                "date": one.date,
                "type": one.kind,
                "open_only": one.version.branch >= OPEN_ONLY_FROM,
            }
            for one in news.branches
        ],
        "rows": news.rows,
        "ended": [{"branch": one.id, "eol": str(one.eol)} for one in news.ended],
        "vulnerable": {
            version: [
                {"cve": one.cve, "score": one.score, "fixed": one.fixed.text, "bulletin": one.bulletin}
                for one in found
            ]
            for version, found in news.vulnerable.items()
        },
        "releases": read_state(news.releases) if news.releases else None,
        "unanswered": [failure(error) for error in news.unanswered],
    }
