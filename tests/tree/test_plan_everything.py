"""The plan of the shipped matrix with everything locked that can be, from repositories that stand in for all.

What is `unknown` then, somebody has to decide: a subscription, or trust in a file of NVIDIA's without a sum.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_build import cli
from driverforge_build.matrix import load_matrix
from support.process import missing
from support.samples import everysystem
from support.samples.aptrepo import signing_key
from support.samples.nvidiasite import data_centre, publish_common
from support.samples.runfile import write_runfile

PROGRAMS = ("createrepo_c", "rpmbuild", "gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)

MATRIX = load_matrix()
PUBLISHED = "580.178.04"
"""The version of which NVIDIA has a checksum file here, for amd64 alone."""
DECISIONS = {
    "subscription": r"a subscription is needed for sle-module-basesystem, where this driver's packages are",
    "archive": r"NVIDIA's archive \S+ for \w+ is not pinned",
    "repository": r"the lock holds nothing for \S+",
}
"""What a cell may be unknown for, and how its reason begins."""


@dataclass(slots=True)
class Site:
    """A folder with a lock file, and the words that name the repositories of all systems."""

    folder: Path
    systems: everysystem.Systems
    keyring: Path
    capture: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        status = cli.run(list(words))
        captured = self.capture.readouterr()
        return status, captured.out, captured.err

    @property
    def given(self) -> list[str]:
        # bases that name their digest: no registry is asked
        bases = [word for row in MATRIX.rows for word in ("--base", f"{row.id}={row.id}@sha256:{'0' * 64}")]
        return ["--lock", str(self.folder / "l.json"), *bases]

    def sources(self, *, subscribed: bool) -> list[str]:
        mirrors = self.systems.words(subscribed=subscribed)
        nvidia = (self.folder / "nvidia").as_uri()
        cache = str(self.folder / "cache")
        return [
            *mirrors,
            "--mirror",
            f"nvidia={nvidia}",
            "--keyring",
            str(self.keyring),
            "--cache-dir",
            cache,
        ]

    def lock(self, *words: str, subscribed: bool = False) -> str:
        status, out, err = self.run("lock", *self.given, *self.sources(subscribed=subscribed), *words)
        assert status == 0, out + err
        return err

    def plan(self, *words: str) -> list[dict[str, Any]]:
        status, out, err = self.run("plan", *self.given, *words, "--json")
        assert status == 0, err
        return list(json.loads(out)["cells"])


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[everysystem.Systems, Path]]:
    folder = tmp_path_factory.mktemp("systems")
    with signing_key(folder / "key", algorithm="rsa2048") as key:
        yield everysystem.publish(MATRIX, folder / "repositories", key), key.keyring


@pytest.fixture
def site(
    tmp_path: Path, published: tuple[everysystem.Systems, Path], capsys: pytest.CaptureFixture[str]
) -> Site:
    """Of one archive NVIDIA has a checksum file, of the others the file alone."""
    publish_common(tmp_path / "nvidia", PUBLISHED)
    for driver in {driver.version for row in MATRIX.rows for driver in row.drivers}:
        for machine in ("x86_64", "aarch64"):
            write_runfile(tmp_path / "nvidia" / data_centre(driver, machine), driver, machine)
    return Site(tmp_path, *published, capsys)


def decision(cell: Mapping[str, Any]) -> str:
    return next(
        (why for why, told in DECISIONS.items() if re.fullmatch(told, cell["reason"])), cell["reason"]
    )


def decisions(cells: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Of what systems cells are unknown, by why."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        if cell["verdict"] == "unknown":
            found.setdefault(decision(cell), set()).add(cell["os"])
    return found


@pytest.mark.full(reason="locks every system, and again by each command that is named")
def test_unknown_is_what_somebody_has_to_decide_and_each_command_that_is_named_works(site: Site) -> None:
    told = site.lock()
    assert told.splitlines()[0] == (
        "rhel8-amd64: a subscription is needed for rhel-8-for-x86_64-baseos-rpms and "
        "rhel-8-for-x86_64-appstream-rpms; left out: kernels 4.18; "
        "JIT images are made without it"
    )
    cells = site.plan()
    everything = {row.id for row in MATRIX.rows}
    assert decisions(cells) == {"archive": everything, "subscription": {"sles15.7"}}
    advised = {decision(cell): cell["run"] for cell in cells if cell["verdict"] == "unknown"}
    for why, command in advised.items():
        words = shlex.split(command.partition("   (")[0])[1:]
        words += site.sources(subscribed=why == "subscription")
        status, out, err = site.run(*words)
        assert status == 0, out + err
        if why == "archive":
            # NVIDIA was asked, and publishes none: only a person can add this
            assert "next: --trust-first-use downloads" in err
            assert "add --archive FILE, or --trust-first-use" in command
            assert site.run(*words, "--trust-first-use")[0] == 0
    after = {cell["cell"]: cell for cell in site.plan()}
    for why, command in advised.items():
        decided = [cell["cell"] for cell in cells if decision(cell) == why and cell["run"] == command]
        assert {after[key]["verdict"] for key in decided} == {"build"}


def test_a_system_of_subscribers_compiles_on_its_nodes_without_a_subscription(site: Site) -> None:
    """What JIT images are made of is in UBI; its kernels are not."""
    site.lock("--select", "rhel9-amd64-*")
    cells = site.plan("--select", "rhel9-amd64-*")
    assert {cell["kernel"] for cell in cells} == {None}
    (jit,) = [cell for cell in cells if cell["driver"] == PUBLISHED]
    assert jit["verdict"] == "build"
    warning = (
        "the lock has no kernels of rhel9-amd64: a subscription is needed for rhel-9-for-x86_64-baseos-rpms"
    )
    assert [one for one in jit["warnings"] if one.startswith(warning)]


def test_with_a_subscription_and_trust_nothing_is_unknown(site: Site) -> None:
    assert site.lock("--trust-first-use", subscribed=True) == ""
    cells = site.plan()
    assert decisions(cells) == {}
    assert {cell["verdict"] for cell in cells} == {"build"}
    built = {cell["os"] for cell in cells if cell["verdict"] == "build" and cell["kernel"]}
    assert built == {
        row.id for row in MATRIX.rows for driver in row.drivers if "precompiled" in driver.variants
    }
    warned = {
        cell["os"] for cell in cells for told in cell["warnings"] if told.startswith("its build downloads")
    }
    assert warned == {"rhel8", "rhel9", "rhel10", "sles15.7"}
    (headers,) = {
        told
        for cell in cells
        if cell["cell"].startswith("rhel9-amd64-580.178.04-5.14")
        for told in cell["warnings"]
        if told.startswith("its build downloads from rhel-9-for-x86_64-baseos-rpms: ")
    }
    assert "--base rhel9=REF" in headers


def test_what_was_locked_with_a_subscription_is_not_lost_without_one(site: Site) -> None:
    site.lock("--select", "rhel9-amd64-*", subscribed=True)
    before = (site.folder / "l.json").read_bytes()
    words = [*site.given, *site.sources(subscribed=False), "--select", "rhel9-amd64-*", "--accept-shrink"]
    status, _, err = site.run("lock", *words)
    assert status == 69
    assert "a subscription is needed for rhel-9-for-x86_64-baseos-rpms" in err
    assert (site.folder / "l.json").read_bytes() == before


def test_a_system_whose_repositories_were_not_read_says_so(site: Site) -> None:
    site.lock("--trust-first-use", "--skip", "rocky9-*", subscribed=True)
    assert decisions(site.plan()) == {"repository": {"rocky9"}}
