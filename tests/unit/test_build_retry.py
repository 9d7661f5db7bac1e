"""Build and push in one life: what is tried again, what another run left, what another builder did."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import BuildOptions, Given
from driverforge_build.app import runner
from driverforge_build.app.build import BuildRequest, build
from driverforge_build.app.runner import (
    PAUSES_S,
    Attempts,
    CellReport,
    HowToRun,
    Pushing,
    Result,
    build_all,
    build_times,
    confirm_all,
)
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.programcells import PREFIXES
from driverforge_build.ports import BuildJob, StepListener
from driverforge_build.publish.alias import standing_for
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.bake import immutable_tag_of, local_reference
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import CommandFailed, DriverforgeError, TemporaryFailure
from driverforge_oci.client import RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.fakes.fakeengine import FakeEngine, store_image
from support.fakes.memoryregistry import HOST
from support.samples.synthetic import all_cells, synthetic_lock

MATRIX = load_matrix()
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
BUSY = TemporaryFailure("registry.site answers 503")
BROKEN = CommandFailed("docker buildx exited 1")


def context(key: str) -> BuildContext:
    (image,) = image_specs([CELLS[key]], synthetic_lock(MATRIX))
    return context_of(image, resources.templates())


JIT = context("debian12-amd64-535.261.03-jit")


@dataclass(slots=True)
class Moody(FakeEngine):
    """Its builds and pushes fail with these errors, one after the other, before they work."""

    build_errors: list[DriverforgeError] = field(default_factory=list)
    push_errors: list[DriverforgeError] = field(default_factory=list)

    def build(self, job: BuildJob, progress: StepListener) -> str:
        digest = FakeEngine.build(self, job, progress)
        if self.build_errors:
            raise self.build_errors.pop(0)
        return digest

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        if self.push_errors:
            raise self.push_errors.pop(0)
        FakeEngine.push(self, reference, remote, progress)


def engine(
    build_errors: Sequence[DriverforgeError] = (), push_errors: Sequence[DriverforgeError] = ()
) -> Moody:
    labels = {JIT.image.id: {"io.driverforge.inputs": JIT.inputs, "io.driverforge.cell": JIT.image.id}}
    return Moody(labels=labels, build_errors=list(build_errors), push_errors=list(push_errors))


def publisher(moody: Moody) -> Publisher:
    client = RegistryClient(Session(moody.registry))
    return Publisher(registry=HOST, engine=moody, client=client, given=Given())


@dataclass(slots=True)
class Run:
    """One `build --push` of one image."""

    report: CellReport
    waited: list[float]
    heard: list[str]


def run(moody: Moody, *, retries: int = 2, no_cache: bool = False, by_builder: bool = False) -> Run:
    job = BuildJob(
        cell=JIT.image.id,
        group="g",
        target="t",
        bake_file=Path("docker-bake.json"),
        reference=local_reference(JIT),
        log=Path("a.log"),
        no_cache=no_cache,
        remote=str(publisher(moody).member(JIT).reference) if by_builder else "",
    )
    waited, heard = list[float](), list[str]()
    pushing = Pushing(publisher=publisher(moody), contexts={JIT.image.id: JIT})
    how = HowToRun(workers=1, keep_going=False, pushing=pushing, retries=retries, wait=waited.append)
    (report,) = build_all([moody], [job], how, lambda _, text: heard.append(text))
    return Run(report, waited, heard)


def test_an_image_is_pushed_when_it_stands() -> None:
    moody = engine()
    report = run(moody).report
    assert report.result is Result.BUILT
    assert report.pushed
    assert moody.pushed == [f"{HOST}/driver:{immutable_tag_of(JIT)}"]
    assert report.pushed.moved


def test_what_a_builder_sends_is_looked_for_at_the_registry_and_sent_once() -> None:
    moody = engine([BUSY])
    report = run(moody, by_builder=True).report
    assert (report.result, report.reference) == (Result.BUILT, moody.pushed[-1])
    assert report.pushed
    assert report.image
    assert (report.image.id, report.pushed.moved) == (report.pushed.digest, True)
    assert moody.images == {}
    # the next run leaves it alone
    assert run(moody, by_builder=True).report.result is Result.EXISTS
    assert len(moody.pushed) == 2  # once in each attempt


def test_what_another_builder_pushed_meanwhile_stays_what_the_tag_stands_for() -> None:
    """Two that begin the same image in the same moment are two images, and the tag is written once."""
    moody = engine()
    place = publisher(moody).member(JIT).reference
    labels = {"io.driverforge.inputs": JIT.inputs, "made": "by another builder"}

    class Slower(Moody):
        def build(self, job: BuildJob, progress: StepListener) -> str:
            digest = FakeEngine.build(self, job, progress)
            store_image(moody.registry, place, labels)
            return digest

    slower = Slower(labels=moody.labels, registry=moody.registry, build_errors=[], push_errors=[])
    report = run(slower, by_builder=True).report
    stands = RegistryClient(Session(moody.registry)).get_manifest(place).digest
    assert stands == store_image(moody.registry, place, labels), "the tag is as the other one wrote it"
    assert report.result is Result.BUILT
    assert report.image
    assert report.pushed
    assert (report.pushed.digest, report.image.id, report.pushed.sent) == (stands, stands, False)


def test_a_passing_failure_is_tried_again_with_its_reason() -> None:
    moody = engine([BUSY, BUSY])
    done = run(moody)
    assert done.report.result is Result.BUILT
    assert [one.reason for one in done.report.attempts] == [BUSY.brief] * 2
    assert done.waited == list(PAUSES_S[:2])
    assert f"{BUSY.brief}; again in 10 s" in done.heard


def test_what_does_not_pass_is_not_tried_again() -> None:
    moody = engine([BROKEN])
    done = run(moody)
    assert (done.report.result, done.report.error) == (Result.FAILED, BROKEN)
    assert (len(moody.built), done.waited) == (1, [])


def test_a_push_is_tried_again_without_another_build() -> None:
    moody = engine(push_errors=[BUSY])
    done = run(moody)
    assert done.report.result is Result.BUILT
    assert (len(moody.built), len(done.report.attempts)) == (1, 1)


@pytest.mark.parametrize("retries", [0, 1])
def test_attempts_are_counted_for_the_whole_life_of_a_cell(retries: int) -> None:
    done = run(engine([BUSY] * retries, [BUSY]), retries=retries)
    assert done.report.result is Result.FAILED
    assert done.report.error is BUSY
    # what was reached before the failure is told
    assert done.report.image


def test_what_another_builder_pushed_meanwhile_is_not_built() -> None:
    moody = engine()
    run(moody)
    moody.images.clear()
    report = run(moody).report
    assert report.result is Result.EXISTS
    assert (len(moody.built), len(moody.pushed)) == (1, 1)


def test_what_a_killed_run_built_and_did_not_push_is_pushed() -> None:
    moody = engine()
    run(moody)
    moody.registry.manifests.clear()
    report = run(moody).report
    assert report.result is Result.FOUND
    assert (len(moody.built), len(moody.pushed)) == (1, 2)
    assert run(moody, no_cache=True).report.result is Result.EXISTS
    moody.registry.manifests.clear()
    assert run(moody, no_cache=True).report.result is Result.BUILT


def test_an_alias_that_a_killed_run_did_not_move_is_moved() -> None:
    moody = engine()
    pushed = run(moody).report.pushed
    assert pushed
    alias = ("driver", JIT.image.alias_tag)
    del moody.registry.manifests[alias]
    (report,) = confirm_all([(JIT, pushed.digest)], publisher(moody), retries=0)
    assert report.result is Result.EXISTS
    assert report.pushed
    assert report.pushed.moved
    assert alias in moody.registry.manifests


@pytest.mark.parametrize("kind", ["another image", "a plain image"])
def test_an_alias_that_stands_for_something_else_is_moved(kind: str) -> None:
    moody = engine()
    pushed = run(moody).report.pushed
    assert pushed
    alias = Reference.parse(f"{HOST}/driver:{JIT.image.alias_tag}")
    mine = moody.registry.manifests["driver", pushed.reference.rpartition(":")[2]]
    if kind == "a plain image":
        moody.registry.manifests["driver", JIT.image.alias_tag] = mine
    else:
        media_type, data = moody.registry.manifests["driver", JIT.image.alias_tag]
        other = store_image(moody.registry, alias.with_tag("other"), {"io.driverforge.cell": ""})
        changed = data.replace(pushed.digest.encode(), other.encode())
        moody.registry.manifests["driver", JIT.image.alias_tag] = (media_type, changed)
    (report,) = confirm_all([(JIT, pushed.digest)], publisher(moody), retries=0)
    assert report.pushed
    assert (report.pushed.moved, report.pushed.sent) == (True, False)
    entries = standing_for(RegistryClient(Session(moody.registry)), alias).entries
    assert [entry.digest for entry in entries.values()] == [pushed.digest]


def test_an_alias_that_stands_costs_one_request_a_run() -> None:
    moody = engine()
    pushed = run(moody).report.pushed
    assert pushed
    moody.registry.log.clear()
    (report,) = confirm_all([(JIT, pushed.digest)], publisher(moody), retries=0)
    assert moody.registry.requests() == [f"GET /v2/driver/manifests/{JIT.image.alias_tag}"]
    assert report.pushed == replace(pushed, sent=False, moved=False)


def test_only_what_was_built_without_trouble_counts_as_measured() -> None:
    moody = engine()
    built = run(moody).report
    drivers = {JIT.image.id: False}
    measured = build_times([built], drivers)[JIT.image.id]
    assert (measured.seconds, measured.compiled) == (built.seconds, False)
    assert build_times([run(moody).report, run(engine([BUSY])).report], drivers) == {}


def test_an_image_without_a_driver_is_no_measure_for_those_of_drivers() -> None:
    built = run(engine()).report
    others = [replace(built, cell=f"{prefix}-1.18.0") for prefix in PREFIXES]
    assert build_times([*others, built], {built.cell: False}).keys() == {built.cell}


def test_the_first_of_a_group_is_marked_for_it_made_what_the_others_found() -> None:
    one = BuildJob(cell="a", group="g", target="t", bake_file=Path("b"), reference="r:1", log=Path("a.log"))
    jobs = [one, replace(one, cell="b"), replace(one, cell="c", group="h")]
    reports = build_all([engine()], jobs, HowToRun(workers=2, keep_going=True), lambda *_: None)
    assert {report.cell: report.first for report in reports} == {"a": True, "b": False, "c": True}


def test_pauses_get_longer_and_the_last_one_is_for_all_further_attempts() -> None:
    pauses: list[float] = []
    attempts = Attempts(left=6, told=lambda _: None, wait=pauses.append)

    def fail() -> None:
        raise BUSY

    with pytest.raises(TemporaryFailure):
        attempts.at(fail)
    assert pauses == [10, 30, 60, 120, 120, 120]
    assert attempts.left == 0
    assert [one.reason for one in attempts.failed] == [BUSY.brief] * 6
    # the clock counts from when the machine was started
    assert all(one.seconds < 60 for one in attempts.failed)


def test_retries_and_the_layer_cache_reach_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PAUSES_S", (0.0,))
    cache = f"{HOST}/cache"
    wanted = BuildOptions(retries=1, cache_from=(f"{cache}/read",), cache_to=f"{cache}/written")
    request = BuildRequest(folder=tmp_path, options=wanted)
    moody = engine(build_errors=[BUSY])
    (report,) = build(request, (JIT,), {}, [moody], lambda _: nullcontext(lambda *_: None))
    assert report.result is Result.BUILT
    assert [attempt.reason for attempt in report.attempts] == [BUSY.brief]
    text = (tmp_path / "generated/docker-bake.json").read_text()
    assert f"ref={cache}/read" in text
    assert f"ref={cache}/written" in text
