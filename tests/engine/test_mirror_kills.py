"""`mirror copy` killed over and over until it is done: what was complete is not sent again, by bytes."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driverforge_oci.client import digest_of
from driverforge_oci.reference import Reference
from support.fakes.hostileproxy import hostile
from support.machines import registry
from support.process import missing, until
from support.samples.mirrorsite import Troubled, put_large, scratch, some, troubled_site
from support.samples.vendorregistry import client
from support.skipping import provided
from support.upstream.registries import DISTRIBUTION, program

# a run is started a hundred times in the long ones
pytestmark = pytest.mark.timeout(3600)
FULL = pytest.mark.full(reason="two gigabytes, and a kill every second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """`count` images of a layer of `size` bytes each; another repository has the first `shared` ones too."""

    count: int
    size: int
    shared: int = 0

    def put(self, address: str) -> list[str]:
        return [
            put_large(place.with_tag(str(number)), some(f"layer {number}", self.size))
            for place, count in zip(places(f"{address}/nvidia"), (self.count, self.shared), strict=True)
            for number in range(count)
        ]

    @property
    def digests(self) -> list[str]:
        return [digest_of(some(f"layer {number}", self.size)) for number in range(self.count)]


def places(above: str) -> list[Reference]:
    return [Reference.parse(f"{above}/{name}:0") for name in ("driver", "toolkit")]


SMALL, LARGE = Cargo(count=8, size=8 << 20, shared=4), Cargo(count=256, size=8 << 20)
"""Debian's docker-registry drops an upload that broke off within a part: blobs have to fit between kills."""
LARGEST = Cargo(count=8, size=256 << 20)


@dataclass(slots=True, kw_only=True)
class Killing:
    """Runs of a copy that are killed. `complete` gives blobs that are there, `sent` what was sent of one."""

    troubled: Troubled
    complete: Callable[[], set[str]]
    sent: Callable[[str], int]
    moved: Callable[[], int]
    kills: int = 0
    before: dict[str, int] = field(default_factory=dict)

    def until_done(self, *given: str, kill_when: Callable[[int, float], bool], most: int) -> None:
        """`kill_when` is told the bytes of this run, and the seconds since its first."""
        while True:
            begun, first = self.moved(), 0.0

            def due(begun: int = begun) -> bool:
                nonlocal first
                if child.poll() is not None:
                    return True
                if (moved := self.moved() - begun) and not first:
                    first = time.monotonic()
                return self.kills < most and bool(first) and kill_when(moved, time.monotonic() - first)

            with self.troubled.site.start(*given) as child:
                until(due, "a kill or the end", timeout=300)
                child.kill()
                out, _ = child.communicate()
            if child.returncode != -signal.SIGKILL:
                assert child.returncode == 0, out
                break
            self.kills += 1
            for digest in self.complete():
                self.before.setdefault(digest, self.sent(digest))
        assert self.kills
        assert {digest: self.sent(digest) for digest in self.before} == self.before


@pytest.fixture(
    params=[
        pytest.param((SMALL, "", 2), id="debian's"),
        pytest.param((LARGE, "", 30), id="debian's, 2 GB", marks=FULL),
        pytest.param((LARGEST, "distribution", 30), id="distribution, 2 GB", marks=FULL),
    ]
)
def killed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Troubled, Cargo, int]]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    cargo, name, most = request.param
    server = provided(lambda: program(DISTRIBUTION)) if name else "docker-registry"
    with (
        scratch() as home,
        registry.serve(home) as theirs,
        hostile(theirs.address) as vendor,
        troubled_site(vendor, server) as made,
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", str(made.site.home / "cache"))
        made.site.list_images(cargo.put(vendor.address))
        made.begin_anew()
        yield made, cargo, most


def kill_at(cargo: Cargo) -> Callable[[int, float], bool]:
    """After some bytes, or a second of copying."""
    chance = random.Random(7)
    if cargo is SMALL:
        return lambda moved, _seconds: moved > 4 << 20 and chance.random() < 0.1
    return lambda _moved, seconds: seconds > 1


def in_mirror(troubled: Troubled, cargo: Cargo) -> set[str]:
    """What one of its repositories has need not be sent to the other."""
    there = places(f"{troubled.site.mirror}/kse/nvidia")
    return {digest for digest in cargo.digests if any(client().has_blob(one, digest) for one in there)}


def in_archive(journal: Path) -> set[str]:
    lines = journal.read_text().splitlines() if journal.exists() else []
    return {line.removeprefix("done ") for line in lines if line.startswith("done sha256:")}


def test_a_copy_that_is_killed_sends_nothing_complete_again(killed: tuple[Troubled, Cargo, int]) -> None:
    troubled, cargo, most = killed
    runs = Killing(
        troubled=troubled,
        complete=lambda: in_mirror(troubled, cargo),
        sent=lambda digest: troubled.vendor.down[digest],
        moved=lambda: troubled.mirror.up,
    )
    runs.until_done(*troubled.to, kill_when=kill_at(cargo), most=most)
    report("registry to registry", troubled, cargo, runs.kills)
    assert troubled.site.held("kse") == 0


def test_an_archive_that_is_killed_sends_nothing_complete_again(killed: tuple[Troubled, Cargo, int]) -> None:
    troubled, cargo, most = killed
    site = troubled.site
    runs = Killing(
        troubled=troubled,
        complete=lambda: in_archive(site.archive.with_name("gpu.journal")),
        sent=lambda digest: troubled.vendor.down[digest],
        moved=lambda: troubled.down,
    )
    archive = str(site.archive)
    runs.until_done("--to-archive", archive, "--volume-size", "64M", kill_when=kill_at(cargo), most=most)
    report("registry to archive", troubled, cargo, runs.kills)
    troubled.begin_anew()
    runs = Killing(
        troubled=troubled,
        complete=lambda: in_mirror(troubled, cargo),
        sent=lambda digest: troubled.mirror.finished[digest],
        moved=lambda: troubled.mirror.up,
    )
    runs.until_done("--from-archive", archive, *troubled.to, kill_when=kill_at(cargo), most=most)
    report("archive to registry", troubled, cargo, runs.kills)
    assert site.held("kse") == 0


def report(way: str, troubled: Troubled, cargo: Cargo, kills: int) -> None:
    """For whoever runs it with -s."""
    total = cargo.count * cargo.size
    down, up = troubled.down / total, troubled.mirror.up / total
    print(f"{way}: {total / 1e6:.0f} MB, {kills} kills, {down:.2f} times down, {up:.2f} times up")
