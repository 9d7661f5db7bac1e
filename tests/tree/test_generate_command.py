"""`driverforge generate` and `build`: what the plan builds, and what becomes of the other cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.advice import Given, Selection
from driverforge_build.app.generate import generate
from driverforge_build.app.prepare import prepare
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import HeaderFact, Lock
from driverforge_build.plan.rows import ImageLookup
from driverforge_build.publish.lookup import image_lookup
from driverforge_build.render.bake import INPUTS_LABEL, immutable_tag_of, target_name
from driverforge_build.verdict.verdicts import State
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import Present
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.fakes.fakeengine import store_image
from support.fakes.memoryregistry import HOST, MemoryRegistry
from support.jsonschemas import check_document
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import BOTH_BREAK, NEW, OLD, write_matrix

QUESTION = "include/linux/pci.h: arguments 4 pci_resize_resource"
REASON = "pci_resize_resource() has four arguments"
CELL = "debian12-amd64-535.261.03"


@dataclass(frozen=True, slots=True)
class Site:
    """A matrix and a lock with two kernels, of which the newer one breaks both types of modules."""

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
    write_matrix(tmp_path, BOTH_BREAK)
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
    assert f"left out {CELL}-{NEW}: blocked: {REASON}\n" in told
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
    assert document["left_out"] == {f"{CELL}-{NEW}": {"verdict": "blocked", "reason": REASON, "run": ""}}
    check_document("generate", document)


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


def test_folders_and_bake_file_hold_what_the_plan_builds_less_what_the_registry_has(
    site: Site, tmp_path: Path
) -> None:
    """One cell exists, one is blocked; of the one that is left, a module type breaks."""
    write_matrix(site.folder)  # only the open modules break for the newer kernel
    selection = Selection(
        given=Given(matrix=site.folder / "site.yaml", lock=site.folder / "site.lock.json"),
        select=(f"{CELL}-*",),
        skip=(f"{CELL}-{OLD}",),
    )
    registry = MemoryRegistry()

    def lookup_for(lock: Lock) -> ImageLookup:
        return image_lookup(RegistryClient(Session(registry)), HOST, lock, Given())

    jit = next(one for one in prepare(selection).contexts() if not one.image.kernel)
    place = Reference.parse(f"{HOST}/driver:{immutable_tag_of(jit)}")
    store_image(registry, place, {INPUTS_LABEL: jit.inputs})
    prepared = prepare(selection, lookup_for=lookup_for)
    done = generate(prepared, selection, tmp_path / "out", vcs_ref="", writing=True)
    assert {row.key: row.verdict.state for row in prepared.plan.rows} == {
        f"{CELL}-jit": State.EXISTS,
        f"{CELL}-{NEW}": State.BUILD,
    }
    assert list(done.left_out) == [f"{CELL}-jit"]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {cell.key for cell in prepared.plan.to_build()} | {"docker-bake.json"}
    bake = json.loads((tmp_path / "out/docker-bake.json").read_text())
    assert bake["group"]["default"]["targets"] == [target_name(f"{CELL}-{NEW}")]
    assert "--module-type proprietary" in (tmp_path / f"out/{CELL}-{NEW}/Dockerfile").read_text()


def test_generate_of_what_the_registry_has_writes_nothing_and_succeeds(site: Site, tmp_path: Path) -> None:
    given = Given(matrix=site.folder / "site.yaml", lock=site.folder / "site.lock.json")
    selection = Selection(given=given, select=(f"{CELL}-jit",))
    prepared = prepare(
        selection, lookup_for=lambda _: lambda cell: (f"{HOST}/driver:x", Present("sha256:" + "0" * 64))
    )
    done = generate(prepared, selection, tmp_path / "out", vcs_ref="", writing=True)
    assert not done.contexts
    assert not (tmp_path / "out").exists()


def test_generate_without_pins_is_an_input_error_with_the_command_that_pins(site: Site) -> None:
    (site.folder / "site.lock.json").write_text(dump_lock(Lock(targets={})))
    status, _, told = site.generate("--select", f"{CELL}-jit")
    assert status == 65
    assert f"{CELL}-jit: the lock holds nothing for debian12-amd64" in told
    assert f"driverforge lock --matrix {site.folder / 'site.yaml'}" in told


def test_nop_writes_the_contexts_and_what_docker_would_be_told(site: Site) -> None:
    words = ("--engine", "nop", "--cache-dir", str(site.folder / "cache"), "--json")
    status, told, _ = site.run("build", "--select", f"{CELL}-jit", *words)
    assert status == 0
    document = json.loads(told)
    (cell,) = document["cells"]
    assert (document["engine"], cell["result"], cell["id"]) == ("nop, which builds nothing", "written", None)
    assert (site.folder / f"cache/generated/{CELL}-jit/Dockerfile").is_file()
    assert "docker buildx bake" in (site.folder / f"cache/logs/{CELL}-jit.log").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--push",), "--push needs --registry"),
        (("--engine", "podman", "--builder", "farm"), "--builder needs --engine docker"),
        (("--engine", "nop", "--push", "--registry", "registry.site/x"), "it has no images"),
        (("--engine", "buildah", "--cache-to", "registry.site/x"), "--cache-from need --engine docker"),
    ],
)
def test_what_builders_cannot_do_is_a_usage_error(site: Site, words: tuple[str, ...], said: str) -> None:
    status, _, told = site.run("build", "--plan", "--select", f"{CELL}-jit", *words)
    assert (status, said in told) == (64, True), told
