"""`build --push` killed at random points, alone and beside another builder: nothing is lost, and nothing is
built twice that need not be.

The registry is a real one; the engine is a fake that keeps its images when its client dies, as a daemon does.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_build.advice import Given
from driverforge_build.fetch.web import registry_transport
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.bake import immutable_tag_of
from driverforge_build.render.context import driver_contexts
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import labels
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.fakes.killablebuild import WORKERS
from support.machines import registry
from support.process import missing
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import MATRIX, write_matrix

ROOT = Path(__file__).parents[2]
ARCHS = ("amd64", "arm64")
KERNELS, MORE_KERNELS = 4, 12
BUILDERS = ("one", "two")

pytestmark = pytest.mark.skipif(
    bool(missing("docker-registry", "setpriv")), reason="docker-registry is not installed"
)


@dataclass(frozen=True, slots=True)
class Site:
    """A matrix and a lock with kernels that both architectures have, as Ubuntu names them, and a registry."""

    folder: Path
    registry: str
    kernels: int
    # the builders send what they build to the registry, and no engine keeps it
    by_builders: bool = False

    def run(self, builder: str, *, kill_at: int = 0, shard: str = "") -> int:
        words = [str(self.folder), self.registry, str(kill_at), *([shard] if shard else [])]
        paths = os.pathsep.join(str(ROOT / name) for name in ("builder", "entrypoints", "tests"))
        done = subprocess.run(
            [sys.executable, "-m", "support.fakes.killablebuild", *words],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": paths,
                "BUILDER": builder,
                **({"BY_BUILDERS": "1"} if self.by_builders else {}),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode in (0, -9), done.stderr
        return done.returncode

    def until_done(self, builder: str, seed: int, *, kills: int, shard: str = "") -> int:
        """Kill so many runs at random points, then let one end; returns how often it was killed."""
        chance = random.Random(f"{builder} {seed}")
        # half of the cells are half of the events and fewer: what is built is asked about once more
        latest = (3 if shard else 10) * (self.kernels + 1)
        killed = 0
        while killed < kills and self.run(builder, kill_at=chance.randint(1, latest), shard=shard):
            killed += 1
        assert self.run(builder, shard=shard) == 0
        return killed

    def built(self, builder: str) -> Counter[str]:
        """How often a builder built each cell."""
        events = [line.split() for line in (self.folder / "events").read_text().splitlines()]
        return Counter(cell for who, what, cell in events if (who, what) == (builder, "built"))

    def check_whole(self) -> None:
        """Every image is there, made from its inputs, and its alias stands for it, for all architectures."""
        client = RegistryClient(Session(registry_transport({}, lambda *_: None)))
        matrix, lock = load_matrix(self.folder / "site.yaml"), self.lock()
        contexts = driver_contexts(all_cells(matrix, lock), lock, given=Given())
        assert len(contexts) == self.images
        for context in contexts:
            platform = f"linux/{context.image.arch}"
            image = Reference.parse(f"{self.registry}/driver:{immutable_tag_of(context)}")
            assert labels(client, image, platform)["io.driverforge.inputs"] == context.inputs
            index = client.get_manifest(image.with_tag(context.image.alias_tag))
            assert [child.platform for child in index.children] == [f"linux/{arch}" for arch in ARCHS]
            standing = client.resolve(image.with_tag(context.image.alias_tag), platform)
            assert standing.digest == client.resolve(image, platform).digest

    @property
    def images(self) -> int:
        return len(ARCHS) * (self.kernels + 1)

    def lock(self) -> Lock:
        releases = [f"5.15.0-{number}-generic" for number in range(100, 100 + self.kernels)]
        made = [kernel(release, package(f"linux-headers-{release}")) for release in releases]
        return Lock(
            targets={
                f"debian12-{arch}": target(*made, arch=arch, drivers={"535.261.03": sample_driver()})
                for arch in ARCHS
            }
        )


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    text = MATRIX[: MATRIX.index("probes:")] + MATRIX[MATRIX.index("systems:\n") :]
    text = text[: text.index("  - id: ubuntu24.04")].replace(
        "archs: [amd64]\n    base", "archs: [amd64, arm64]\n    base"
    )
    text = text.replace('"6.1.*"', '"5.15.0-*"').replace(
        "{amd64: [cloud-amd64]}", "{amd64: [generic], arm64: [generic]}"
    )
    write_matrix(tmp_path, text)
    kernels = MORE_KERNELS if request.node.get_closest_marker("full") else KERNELS
    with registry.serve(tmp_path / "registry") as server:
        found = Site(tmp_path, f"{server.address}/site", kernels)
        (tmp_path / "site.lock.json").write_text(dump_lock(found.lock()))
        yield found


LONG = pytest.mark.full(reason="three minutes, and more of the same")


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=LONG)])
def test_kills_at_random_points_lose_nothing_and_build_nothing_twice(site: Site, kills: int) -> None:
    killed = site.until_done("one", 1, kills=kills)
    site.check_whole()
    assert killed >= 3 / 4 * kills
    assert set(site.built("one").values()) == {1}


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=LONG)])
def test_kills_while_builders_push_lose_nothing(site: Site, kills: int) -> None:
    """What has its digest and no tag yet when the client dies is built again: nobody would find it."""
    remote = replace(site, by_builders=True)
    killed = remote.until_done("one", 1, kills=kills)
    remote.check_whole()
    assert killed >= 3 / 4 * kills
    built = remote.built("one")
    assert len(built) == remote.images
    assert built.total() - len(built) <= killed * WORKERS


@pytest.mark.parametrize(
    ("shards", "kills"),
    [
        pytest.param(("", ""), 20, id="same cells", marks=LONG),
        pytest.param(("1/2", "2/2"), 20, id="shards", marks=LONG),
        pytest.param(("1/2", ""), 1, id="overlapping shards"),
        pytest.param(("1/2", ""), 20, id="overlapping shards, more kills", marks=LONG),
    ],
)
def test_two_builders_that_are_killed_lose_nothing(site: Site, shards: tuple[str, str], kills: int) -> None:
    killed = side_by_side(lambda at: site.until_done(BUILDERS[at], 7, kills=kills, shard=shards[at]))
    site.check_whole()
    assert min(killed) >= 3 / 4 * kills, killed
    # each of them built an image once at most, however often it was killed
    assert max(site.built(builder).most_common(1)[0][1] for builder in BUILDERS) == 1


@pytest.mark.full(reason="the builders that are killed share it, too")
def test_two_builders_with_the_same_cells_share_the_work(site: Site) -> None:
    side_by_side(lambda at: site.run(BUILDERS[at]))
    site.check_whole()
    both = site.built("one") & site.built("two")
    # six workers, and images of a moment each: some are begun twice before one of them stands
    assert len(both) <= site.images / 2


def side_by_side(life: Callable[[int], int]) -> list[int]:
    with ThreadPoolExecutor(len(BUILDERS)) as pool:
        return list(pool.map(life, range(len(BUILDERS))))
