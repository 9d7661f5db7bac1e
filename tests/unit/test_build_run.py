"""Builds: what is begun after a failure, what a report says, what the command line of an engine holds, and
what it must not.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build.advice import Given
from driverforge_build.app.build import BuildRequest, jobs, mirror_lines
from driverforge_build.app.prepare import (
    FailOn,
    Prepared,
    check_mirrors,
    exit_status,
    failing,
    row_mirrors,
)
from driverforge_build.app.runner import CellReport, Result, build_all
from driverforge_build.engine.buildx import bake_command
from driverforge_build.engine.images import layers_of
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.select import check_named
from driverforge_build.plan.rows import Plan, Planned
from driverforge_build.ports import BuildJob, StepListener
from driverforge_build.verdict import State, Verdict
from driverforge_core.errors import CommandFailed, UsageError
from support.fakes.fakeengine import FakeEngine
from support.samples.synthetic import all_cells

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
    reports = build_all(
        engine, [job(name) for name in names], workers=1, keep_going=keep_going, told=lambda *_: None
    )
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
    good, bad = reports["a"].document(), reports["b"].document()
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

    reports = build_all(Meeting(), [job("a"), job("b")], workers=2, keep_going=False, told=lambda *_: None)
    assert {report.result for report in reports} == {Result.BUILT}


def test_jobs_that_share_stages_wait_for_the_first_of_them() -> None:
    engine = FakeEngine()
    work = [replace(job(name), group=name[0]) for name in ("a1", "a2", "b1", "b2")]
    reports = build_all(engine, work, workers=1, keep_going=False, told=lambda *_: None)
    assert engine.built == ["a1", "b1", "a2", "b2"]
    assert [report.cell for report in reports] == ["a1", "a2", "b1", "b2"]


def test_told_hears_each_step_and_the_end() -> None:
    heard: list[tuple[str, str]] = []
    build_all(
        FakeEngine(),
        [job("a")],
        workers=1,
        keep_going=False,
        told=lambda cell, text: heard.append((cell, text)),
    )
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
    assert row_mirrors([JIT.os, own.os], {}) == {"debian12": "http://mirror.site/debian"}


def test_a_mirror_that_the_base_images_own_repositories_would_not_use_is_refused() -> None:
    rhel = next(cell for cell in CELLS.values() if cell.os.id == "rhel9")
    check_mirrors({"debian12": "http://a"}, (JIT, rhel))
    with pytest.raises(UsageError, match="rhel9 uses dnf"):
        check_mirrors({"rhel9": "http://a"}, (JIT, rhel))


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


def test_jobs_have_the_engines_names_and_a_log_each(tmp_path: Path) -> None:
    from driverforge_build import resources
    from driverforge_build.render.context import context_of
    from driverforge_build.render.spec import image_specs
    from support.samples.synthetic import synthetic_lock

    (image,) = image_specs([JIT], synthetic_lock(load_matrix()))
    made = context_of(image, resources.templates())
    request = BuildRequest(folder=Path("/cache"), ca=Path("/ca.pem"))
    mirrors = {"debian12": "http://user:pass@m/debian", "debian13": "http://other"}
    (work,) = jobs(
        request, (made,), mirrors, bake_file=Path("/cache/generated/docker-bake.json"), secrets=tmp_path
    )
    assert work.target == "debian12-amd64-535_261_03-jit"
    assert work.log == Path("/cache/logs/debian12-amd64-535.261.03-jit.log")
    assert work.secrets["ca"] == Path("/ca.pem")
    assert work.secrets["mirror"].read_text() == "http://user:pass@m/debian *\n"
    assert work.secrets["mirror"].stat().st_mode & 0o777 == 0o600
