"""Builds: what is begun after a failure, what a report says, what the command line of an engine holds, and
what it must not.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from driverforge_build import resources
from driverforge_build.advice import BuildOptions, Given
from driverforge_build.app.build import BuildRequest, jobs, mirror_lines
from driverforge_build.app.outcomes import build_cells
from driverforge_build.app.prepare import (
    FailOn,
    Prepared,
    check_mirrors,
    exit_status,
    failing,
    row_mirrors,
)
from driverforge_build.app.runner import CellReport, HowToRun, Pushing, Result, build_all
from driverforge_build.engine.buildah import build_command
from driverforge_build.engine.buildx import bake_command
from driverforge_build.engine.nop import Nop
from driverforge_build.engine.store import layers_of
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.select import check_named
from driverforge_build.plan.rows import Plan, Planned
from driverforge_build.ports import BuildJob, StepListener
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from driverforge_build.verdict.verdicts import State, Verdict
from driverforge_core.errors import CommandFailed, Unsupported, UsageError
from support.fakes.fakeengine import FakeEngine
from support.samples.synthetic import all_cells, synthetic_lock

CELLS = {cell.key: cell for cell in all_cells(load_matrix())}
JIT = CELLS["debian12-amd64-535.261.03-jit"]
JOB = BuildJob(
    cell="a",
    group="a",
    target="a",
    bake_file=Path("/out/docker-bake.json"),
    reference="localhost/driverforge/driver:a",
    log=Path("/logs/a.log"),
)
BROKEN = CommandFailed("docker buildx exited 1", details=["whole output: /logs/b.log"], resolution="read it")


def job(name: str) -> BuildJob:
    return replace(JOB, cell=name, group=name, target=name, reference=f"driver:{name}")


def run(engine: FakeEngine, *names: str, keep_going: bool) -> dict[str, CellReport]:
    how = HowToRun(workers=1, keep_going=keep_going)
    reports = build_all([engine], [job(name) for name in names], how, lambda *_: None)
    return {report.cell: report for report in reports}


def test_after_a_failure_nothing_new_is_begun() -> None:
    engine = FakeEngine(failures={"b": BROKEN})
    reports = run(engine, "a", "b", "c", keep_going=False)
    assert [report.result for report in reports.values()] == [Result.BUILT, Result.FAILED, Result.SKIPPED]
    assert engine.built == ["a", "b"]


def test_keep_going_builds_the_others() -> None:
    reports = run(FakeEngine(failures={"b": BROKEN}), "a", "b", "c", keep_going=True)
    assert [report.result for report in reports.values()] == [Result.BUILT, Result.FAILED, Result.BUILT]


def test_report_has_image_or_error_and_the_log() -> None:
    reports = run(FakeEngine(failures={"b": BROKEN}), "a", "b", keep_going=True)
    prepared = Prepared(plan=Plan(rows=()), lock=Lock(), given=Given())
    good, bad = build_cells(prepared, (), list(reports.values()))
    assert (good["id"], good["size"], good["error"]) == ("sha256:a", 1000, None)
    assert good["layers"][0]["created_by"] == "COPY"
    assert bad["id"] is None
    assert bad["error"] == {
        "brief": "docker buildx exited 1",
        "details": ["whole output: /logs/b.log"],
        "resolution": "read it",
        "exit_status": 70,
    }
    assert {good["log"], bad["log"]} == {"/logs/a.log"}


def test_jobs_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=30)

    class Meeting(FakeEngine):
        def build(self, job: BuildJob, progress: StepListener) -> None:
            meeting.wait()  # breaks unless both are here
            super().build(job, progress)

    how = HowToRun(workers=2, keep_going=False)
    reports = build_all([Meeting()], [job("a"), job("b")], how, lambda *_: None)
    assert {report.result for report in reports} == {Result.BUILT}


def test_jobs_that_share_stages_wait_for_the_first_of_them() -> None:
    engine = FakeEngine()
    work = [replace(job(name), group=name[0]) for name in ("a1", "a2", "b1", "b2")]
    reports = build_all([engine], work, HowToRun(workers=1, keep_going=False), lambda *_: None)
    assert engine.built == ["a1", "b1", "a2", "b2"]
    assert [report.cell for report in reports] == ["a1", "a2", "b1", "b2"]


class Asked:
    """A publisher whose registry does not answer; it notes which image it was asked for."""

    def __init__(self) -> None:
        self.contexts: list[str] = []

    def pushed(self, context: str) -> None:
        self.contexts.append(context)
        raise BROKEN


def test_builders_that_push_the_same_images_do_not_begin_them_in_the_same_order() -> None:
    """Each would find that the registry lacks the image that the others are building."""
    names = [f"cell-{number}" for number in range(20)]
    orders = []
    for _ in range(2):
        asked = Asked()
        pushing = Pushing(publisher=cast(Any, asked), contexts=cast(Any, {name: name for name in names}))
        how = HowToRun(workers=1, keep_going=True, pushing=pushing)
        reports = build_all([FakeEngine()], [job(name) for name in names], how, lambda *_: None)
        assert [report.cell for report in reports] == names
        assert sorted(asked.contexts) == sorted(names)
        orders.append(asked.contexts)
    assert names not in orders
    assert orders[0] != orders[1]


def test_several_builders_have_a_share_each_and_stand_in_one_report() -> None:
    engines = [FakeEngine(), FakeEngine()]
    work = [replace(job(name), group=name[0]) for name in ("a1", "b1", "a2", "b2", "a3")]
    reports = build_all(engines, work, HowToRun(workers=1, keep_going=False), lambda *_: None)
    # few groups on each: their stages are built once
    assert [engine.built for engine in engines] == [["a1", "a2"], ["a3", "b1", "b2"]]
    assert [report.cell for report in reports] == ["a1", "b1", "a2", "b2", "a3"]


def test_builders_work_at_the_same_time_and_one_more_than_there_are_jobs_is_idle() -> None:
    meeting = threading.Barrier(2, timeout=30)

    class Meeting(FakeEngine):
        def build(self, job: BuildJob, progress: StepListener) -> None:
            meeting.wait()
            super().build(job, progress)

    engines = [Meeting(), Meeting(), Meeting()]
    build_all(engines, [job("a"), job("b")], HowToRun(workers=1, keep_going=False), lambda *_: None)
    assert sorted(len(engine.built) for engine in engines) == [0, 1, 1]


def test_after_a_failure_on_one_builder_the_others_begin_nothing_new() -> None:
    first, failed = threading.Event(), threading.Event()

    class Slow(FakeEngine):
        def build(self, job: BuildJob, progress: StepListener) -> None:
            first.set()
            assert failed.wait(30)
            super().build(job, progress)

    class Failing(FakeEngine):
        def build(self, job: BuildJob, progress: StepListener) -> None:
            assert first.wait(30)
            super().build(job, progress)

    def told(cell: str, text: str) -> None:
        if text == "failed":
            failed.set()

    engines = [Slow(), Failing(failures={"c": BROKEN})]
    how = HowToRun(workers=1, keep_going=False)
    reports = build_all(engines, [job(name) for name in "abcd"], how, told)
    assert [report.result for report in reports] == [
        Result.BUILT,
        Result.SKIPPED,
        Result.FAILED,
        Result.SKIPPED,
    ]


def test_an_engine_that_makes_no_images_writes_and_does_not_fail(tmp_path: Path) -> None:
    log = tmp_path / "logs/a.log"
    work = replace(job("a"), log=log, bake_file=tmp_path / "docker-bake.json")
    (report,) = build_all([Nop()], [work], HowToRun(workers=1, keep_going=False), lambda *_: None)
    assert (report.result, report.image) == (Result.WRITTEN, None)
    assert exit_status(planned(State.BUILD), [report]) == 0
    assert log.read_text() == (
        f"$ cd {tmp_path} && docker buildx bake --file docker-bake.json --progress plain --load a\n"
    )
    with pytest.raises(Unsupported, match="has no images"):
        Nop().push("a", "b", lambda _: None)


def test_told_hears_each_step_and_the_end() -> None:
    heard: list[tuple[str, str]] = []
    how = HowToRun(workers=1, keep_going=False)
    build_all([FakeEngine()], [job("a")], how, lambda cell, text: heard.append((cell, text)))
    assert heard == [("a", "userspace 1/1 RUN true"), ("a", "built")]


def planned(state: State, key: str = "debian12-amd64-535.261.03-jit", *, unanswered: bool = False) -> Plan:
    return Plan(
        rows=(
            Planned(
                cell=replace(JIT, key=key), verdict=Verdict(state=state, reason="r", unanswered=unanswered)
            ),
        )
    )


@pytest.mark.parametrize(
    ("plan", "select", "status"),
    [
        (planned(State.EXISTS), (JIT.key,), 0),
        (planned(State.BLOCKED), ("debian12-*",), 0),  # a glob takes what there is
        (planned(State.BLOCKED), (JIT.key,), 1),  # a name wants that one
        (planned(State.UNKNOWN), (JIT.key,), 1),
        (planned(State.UNKNOWN), ("debian12-*",), 1),  # there is nothing that it could take
        (planned(State.UNKNOWN, unanswered=True), ("debian12-*",), 75),
    ],
)
def test_exit_status(plan: Plan, select: tuple[str, ...], status: int) -> None:
    assert exit_status(plan, (), failing(Prepared(plan=plan, lock=Lock(), given=Given()), select)) == status


def test_an_unknown_cell_beside_one_that_can_be_had_is_no_failure_unless_told() -> None:
    rows = (*planned(State.EXISTS).rows, *planned(State.UNKNOWN).rows, *planned(State.BLOCKED).rows)
    prepared = Prepared(plan=Plan(rows=rows), lock=Lock(), given=Given())
    assert failing(prepared, ("debian12-*",)) == ()
    assert failing(prepared, ("debian12-*",), {FailOn.UNKNOWN}) == rows[1:2]
    assert failing(prepared, ("debian12-*",), {FailOn.UNKNOWN, FailOn.BLOCKED}) == rows[1:]
    assert failing(prepared, (JIT.key,), {FailOn.NEVER}) == ()


def test_exit_status_of_a_failed_build_is_1() -> None:
    reports = tuple(run(FakeEngine(failures={"b": BROKEN}), "a", "b", keep_going=True).values())
    assert exit_status(planned(State.BUILD), reports) == 1
    assert exit_status(planned(State.BUILD), reports[:1]) == 0


def test_command_line_is_the_one_a_person_would_type() -> None:
    assert bake_command(JOB, environment={}) == [
        *("docker", "buildx", "bake", "--file", "docker-bake.json", "--progress", "plain", "--load", "a")
    ]


def test_a_builder_is_named_and_pushes_what_it_builds() -> None:
    pushed = replace(JOB, remote="registry.site/nvidia/driver:1")
    assert bake_command(pushed, environment={}, builder="farm") == [
        *("docker", "buildx", "bake", "--file", "docker-bake.json", "--progress", "plain"),
        *("--builder", "farm"),
        *("--set", "a.tags=registry.site/nvidia/driver"),
        *("--set", "a.output=type=image,push=true,push-by-digest=true,name-canonical=true"),
        *("--metadata-file", f"{JOB.log.with_suffix('.pushed.json')}", "a"),
    ]
    plain = bake_command(pushed, environment={}, builder="farm", plain_http=["registry.site"])
    assert "name-canonical=true,registry.insecure=true" in plain[plain.index("--metadata-file") - 1]
    assert bake_command(pushed, environment={}, plain_http=["other.site"]) == bake_command(
        pushed, environment={}
    )


def test_buildahs_command_line_is_made_from_the_bake_files_target() -> None:
    target = {
        "context": "the-cell",
        "platforms": ["linux/amd64"],
        "labels": {"b": "2", "a": "x=1"},
        "args": {"SOURCE_DATE_EPOCH": "946684800", "ARCHIVE_URL": "http://mirror.site/d.run"},
    }
    work = replace(JOB, secrets={"ca": Path("/etc/site.pem")}, network="host", no_cache=True)
    work = replace(work, contexts={"payload": Path("/cache/archives/1")})
    words = build_command("podman", work, target, environment={"HTTPS_PROXY": "http://user:pass-word@p:1"})
    assert words == [
        *("podman", "build", "--layers", "--tag", JOB.reference, "--platform", "linux/amd64"),
        *("--source-date-epoch", "946684800", "--label", "a=x=1", "--label", "b=2"),
        *("--build-arg", "HTTPS_PROXY", "--build-arg", "ARCHIVE_URL=http://mirror.site/d.run"),
        *("--secret", "id=ca,src=/etc/site.pem", "--build-context", "payload=/cache/archives/1"),
        *("--network", "host", "--no-cache", "the-cell"),
    ]


def test_modules_leave_a_build_by_a_stage_and_come_back_as_a_folder() -> None:
    away = replace(JOB, stage="unsigned", output=Path("/away/a"))
    back = replace(JOB, contexts={"unsigned": Path("/away/a")})
    assert bake_command(away, environment={})[7:] == [
        *("--set", "a.target=unsigned", "--set", "a.output=type=local,dest=/away/a"),
        *("--allow=fs.write=/away/a", "a"),
    ]
    assert bake_command(back, environment={})[7:] == [
        *("--load", "--set", "*.contexts.unsigned=/away/a", "--allow=fs.read=/away/a", "a"),
    ]
    target = {
        "context": "a",
        "platforms": ["linux/amd64"],
        "labels": {},
        "args": {"SOURCE_DATE_EPOCH": "946684800"},
    }
    words = build_command("buildah", away, target, environment={})
    assert words[:7] == [
        "buildah",
        "build",
        "--layers",
        "--target",
        "unsigned",
        "--output",
        "type=local,dest=/away/a",
    ]
    assert "--tag" not in words
    assert build_command("buildah", back, target, environment={})[-3:] == [
        "--build-context",
        "unsigned=/away/a",
        "a",
    ]


def test_proxies_are_named_and_their_values_are_not_on_the_command_line() -> None:
    words = bake_command(
        JOB, environment={"HTTPS_PROXY": "http://user:pass-word@proxy.site:3128", "no_proxy": ""}
    )
    assert words[8:10] == ["--set", "*.args.HTTPS_PROXY"]
    assert "pass-word" not in " ".join(words)
    assert not any("no_proxy" in word for word in words)


def test_secrets_are_files_that_bake_may_read() -> None:
    words = bake_command(
        replace(JOB, secrets={"ca": Path("/etc/site.pem"), "mirror": Path("/tmp/m")}), environment={}
    )
    assert [word for word in words if "secrets" in word] == [
        "*.secrets=id=ca,src=/etc/site.pem",
        "*.secrets=id=mirror,src=/tmp/m",
    ]
    assert "--allow=fs.read=/etc/site.pem" in words


def test_a_folder_takes_the_place_of_a_stage() -> None:
    words = bake_command(replace(JOB, contexts={"payload": Path("/c/1")}), environment={})
    assert words[-4:-1] == ["--set", "*.contexts.payload=/c/1", "--allow=fs.read=/c/1"]


def test_host_network_is_asked_for_with_its_permission() -> None:
    assert bake_command(replace(JOB, network="host"), environment={})[-2] == "--allow=network.host"


def test_mirror_of_an_os_and_of_one_of_its_suites() -> None:
    mirrors = {
        "debian12": "http://a/debian",
        "debian12/bookworm-security": "http://b/sec",
        "debian13": "http://c/debian",
        "debian12-arm64": "http://ports/debian",
    }
    both = ["http://a/debian *", "http://b/sec bookworm-security"]
    assert mirror_lines(mirrors, "debian12", "amd64") == both
    assert mirror_lines(mirrors, "debian12", "arm64") == ["http://ports/debian *", *both]


def test_mirror_of_the_matrix_serves_builds_too() -> None:
    own = replace(JIT, os=JIT.os.model_copy(update={"mirror": "http://mirror.site/debian"}))
    assert row_mirrors([JIT.os, own.os]) == {"debian12": "http://mirror.site/debian"}


def test_a_mirror_that_the_base_images_own_repositories_would_not_use_is_refused() -> None:
    rhel = next(cell for cell in CELLS.values() if cell.os.id == "rhel9")
    check_mirrors({"debian12": "http://a"}, (JIT, rhel))
    with pytest.raises(UsageError, match="rhel9 uses dnf"):
        check_mirrors({"rhel9": "http://a"}, (JIT, rhel))


@pytest.mark.parametrize("key", ["rhel9/cuda-rhel9", "rhel9-amd64/cuda-rhel9", "nvidia"])
def test_a_mirror_of_what_buildkit_downloads_itself_serves_every_system_without_a_login(key: str) -> None:
    rhel = next(cell for cell in CELLS.values() if cell.key.startswith("rhel9-amd64-"))
    check_mirrors({key: "http://m/cuda"}, (JIT, rhel))
    with pytest.raises(UsageError, match=f"--mirror {key}: a build cannot log in there"):
        check_mirrors({key: "https://user:secret@m/cuda"}, (JIT, rhel))


def test_an_os_that_no_selected_cell_is_of_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--base names debian11") as caught:
        check_named("--base", ["debian11"], {"debian12", "debian13"})
    assert caught.value.resolution == "write one of debian12, debian13"


def test_layer_sizes_come_from_the_history_where_each_layer_has_one() -> None:
    history = [
        {"Size": 0, "CreatedBy": "LABEL x=y"},
        {"Size": 17, "CreatedBy": "COPY /out/opt /opt"},
        {"Size": 0, "CreatedBy": "ENV a=b"},
        {"Size": 186, "CreatedBy": ""},
    ]
    assert [(layer.digest, layer.size) for layer in layers_of(["base", "modules"], history)] == [
        ("base", 186),
        ("modules", 17),
    ]
    assert [layer.size for layer in layers_of(["base", "empty", "modules"], history)] == [0, 0, 0]


def jit_context() -> BuildContext:
    (image,) = image_specs([JIT], synthetic_lock(load_matrix()))
    return context_of(image, resources.templates())


def test_without_the_compile_cache_every_run_has_a_mount_that_nobody_else_has_written_to(
    tmp_path: Path,
) -> None:
    def arguments(request: BuildRequest) -> list[str]:
        (job,) = jobs(request, (jit_context(),), {}, bake_file=Path("docker-bake.json"), secrets=tmp_path)
        words = bake_command(job, environment={})
        return [word for word in words if word.startswith("*.args")]

    assert arguments(BuildRequest(folder=tmp_path)) == []
    first, second = (
        arguments(BuildRequest(folder=tmp_path, options=BuildOptions(no_compile_cache=True)))
        for _ in range(2)
    )
    assert re.fullmatch(r"\*\.args\.COMPILE_CACHE=driverforge-compile-[0-9a-f]{32}", first[0])
    assert len(first) == 1
    assert first != second


def test_jobs_have_the_engines_names_and_a_log_each(tmp_path: Path) -> None:
    made = jit_context()
    request = BuildRequest(folder=Path("/cache"), options=BuildOptions(ca=Path("/ca.pem")))
    mirrors = {"debian12": "http://user:pass@m/debian", "debian13": "http://other"}
    (work,) = jobs(
        request, (made,), mirrors, bake_file=Path("/cache/generated/docker-bake.json"), secrets=tmp_path
    )
    assert work.target == "debian12-amd64-535_261_03-jit"
    assert work.log == Path("/cache/logs/debian12-amd64-535.261.03-jit.log")
    assert work.secrets["ca"] == Path("/ca.pem")
    assert work.secrets["mirror"].read_text() == "http://user:pass@m/debian *\n"
    assert work.secrets["mirror"].stat().st_mode & 0o777 == 0o600
