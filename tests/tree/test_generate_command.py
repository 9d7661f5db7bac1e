"""`driverforge generate` and `build`, and what they do with cells that the plan blocks or does not know."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import HeaderFact, Lock
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import NEW, OLD, write_matrix

QUESTION = "include/linux/pci.h: arguments 4 pci_resize_resource"
REASON = "pci_resize_resource() has four arguments"
CELL = "debian12-amd64-535.261.03"


@dataclass(frozen=True, slots=True)
class Site:
    """A matrix and a lock with two kernels, of which the newer one breaks the driver."""

    folder: Path
    out: Callable[[], tuple[str, str]]

    def run(self, command: str, *words: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        given = ["--matrix", str(self.folder / "site.yaml"), "--lock", str(self.folder / "site.lock.json")]
        status = cli.run([command, *given, *words])
        return status, *self.out()

    def generate(self, *words: str) -> tuple[int, str, str]:
        return self.run("generate", "--output", str(self.folder / "out"), *words)


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    write_matrix(tmp_path)
    commons = {release: package(f"linux-headers-{release[:8]}-common") for release in (OLD, NEW)}
    kernels = [kernel(release, package(f"linux-headers-{release}"), commons[release]) for release in commons]
    facts = {
        common.key: {QUESTION: HeaderFact(breaks=release == NEW, found="include/linux/pci.h:2: x")}
        for release, common in commons.items()
    }
    whole = target(*kernels, drivers={"535.261.03": sample_driver()}, header_facts=facts)
    (tmp_path / "site.lock.json").write_text(dump_lock(Lock(targets={whole.key: whole})))
    return Site(tmp_path, capsys.readouterr)


def test_generate_leaves_out_what_the_plan_blocks_and_says_why(site: Site) -> None:
    status, _, told = site.generate()
    assert status == 0
    assert f"left out {CELL}-{NEW}: {REASON}\n" in told
    assert sorted(path.name for path in (site.folder / "out").iterdir()) == [
        f"{CELL}-{OLD}",
        f"{CELL}-jit",
        "docker-bake.json",
    ]
    assert NEW not in (site.folder / "out/docker-bake.json").read_text()


def test_a_blocked_cell_that_was_named_is_a_failure_of_generate(site: Site) -> None:
    status, told, _ = site.generate("--select", f"{CELL}-{NEW}", "--select", f"{CELL}-jit", "--json")
    document = json.loads(told)
    assert status == 1
    assert [image["cell"] for image in document["images"]] == [f"{CELL}-jit"]
    assert document["left_out"] == {f"{CELL}-{NEW}": [REASON]}


def test_generate_refuses_where_nothing_is_left_to_write(site: Site) -> None:
    status, _, told = site.generate("--select", f"*-{NEW}")
    assert status == 64
    assert f"{CELL}-{NEW}: {REASON}" in told
    assert not (site.folder / "out").exists()


def test_generate_refuses_a_lock_without_any_system_of_the_matrix(site: Site) -> None:
    (site.folder / "site.lock.json").write_text(dump_lock(Lock(targets={})))
    status, _, told = site.generate()
    assert status == 64
    assert f"driverforge lock --matrix {site.folder / 'site.yaml'}" in told
    assert not (site.folder / "out").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), 1),
        (("--fail-on", "blocked"), 0),
        (("--fail-on", "unknown"), 1),
        (("--fail-on", "never"), 0),
        (("--fail-on", "blocked", "--fail-on", "unknown"), 1),
        (("--fail-on", "never", "--fail-on", "unknown"), 64),
    ],
)
def test_a_build_that_can_have_nothing_for_want_of_a_lock_fails_unless_told(
    site: Site, words: tuple[str, ...], expected: int
) -> None:
    (site.folder / "site.lock.json").write_text(dump_lock(Lock(targets={})))
    assert site.run("build", "--plan", "--select", "debian12-*", *words)[0] == expected


def test_a_build_that_has_something_to_do_succeeds_beside_a_blocked_cell_unless_told(site: Site) -> None:
    words = ("build", "--plan", "--select", "debian12-*")
    assert site.run(*words)[0] == 0
    assert site.run(*words, "--fail-on", "blocked")[0] == 1


def test_a_push_of_nothing_for_want_of_a_lock_fails_and_says_what_to_run(site: Site) -> None:
    (site.folder / "site.lock.json").write_text(dump_lock(Lock(targets={})))
    words = ("push", "--plan", "--registry", "registry.site/nvidia", "--select", "debian12-*")
    status, _, told = site.run(*words)
    assert status == 1
    assert f"{CELL}-jit  unknown  the lock holds nothing for debian12-amd64" in told
    assert told.count("to run: driverforge lock ") == 1
    assert site.run(*words, "--fail-on", "never")[0] == 0
