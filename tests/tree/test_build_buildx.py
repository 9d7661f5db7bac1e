"""The docker command as the builder drives it: a mock command on PATH, real processes, what is said when it
fails.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build.engine.buildah import Buildah
from driverforge_build.engine.buildx import Buildx
from driverforge_build.engine.process import answer, run_logged
from driverforge_build.ports import BuildJob
from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    NotPermitted,
    StorageFailed,
    TemporaryFailure,
    Unavailable,
)
from support.fakes.mockpath import MockPath

OUTPUT = r"""
case "$1 $2" in
"network inspect") exit 0 ;;
"buildx bake")
	echo '#5 [userspace 2/7] RUN --mount=type=bind,target=/x /run/driverforge/scripts/fetch-pinned install /x'
	echo '#6 [debian12-amd64-jit jit 1/4] COPY --link a /a'
	echo '#7 exporting layers'
	echo '#7 exporting layers 3.1s done'
	env >"$ENVIRONMENT" ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MockPath:
    mock = MockPath(tmp_path / "bin")
    mock.folder.mkdir()
    monkeypatch.setenv("PATH", f"{mock.folder}:/usr/bin:/bin")
    monkeypatch.setenv("ENVIRONMENT", str(tmp_path / "environment"))
    return mock


@pytest.fixture
def job(tmp_path: Path) -> BuildJob:
    return BuildJob(
        cell="a",
        group="a",
        target="a",
        bake_file=tmp_path / "docker-bake.json",
        reference="driver:a",
        log=tmp_path / "logs/a.log",
        network="default",
    )


def test_steps_are_told_and_the_whole_output_is_logged(docker: MockPath, job: BuildJob) -> None:
    docker.add("docker", OUTPUT)
    told: list[str] = []
    Buildx().build(job, told.append)
    assert told == [
        "userspace 2/7 RUN /run/driverforge/scripts/fetch-pinned install /x",
        "jit 1/4 COPY --link a /a",
        "exporting layers",
    ]
    assert "#7 exporting layers 3.1s done" in job.log.read_text()
    assert job.log.read_text().startswith(
        f"$ cd {job.bake_file.parent} && docker buildx bake --file docker-bake.json"
    )
    assert "BUILDX_NO_DEFAULT_ATTESTATIONS=1" in (job.bake_file.parent / "environment").read_text()


def test_a_daemon_without_a_bridge_builds_on_the_hosts_network(docker: MockPath, job: BuildJob) -> None:
    docker.add("docker", 'case "$1" in network) exit 1 ;; esac')
    assert Buildx().network() == "host"
    docker.add("docker")
    assert Buildx().network() == ""
    Buildx().build(replace(job, network="host"), lambda _: None)
    assert any("--allow=network.host" in call for call in docker.calls("docker"))


def test_failure_shows_command_status_last_lines_and_where_the_rest_is(
    docker: MockPath, job: BuildJob
) -> None:
    docker.add("docker", 'for n in $(seq 100); do echo "line $n"; done; echo "ERROR: it broke" >&2; exit 17')
    with pytest.raises(CommandFailed, match="exited 17") as caught:
        Buildx().build(job, lambda _: None)
    details = caught.value.details
    assert details[0].startswith("command: docker buildx bake")
    assert details[1] == f"whole output: {job.log}"
    assert details[-1] == "ERROR: it broke"
    assert "line 1\n" in job.log.read_text()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            'case "$1" in version) echo "Cannot connect to the Docker daemon" >&2; exit 1 ;; esac',
            "no docker engine answers",
        ),
        (
            (
                'case "$1" in version) echo 28.5.2 ;; buildx) echo "docker: unknown command: docker buildx" '
                ">&2; exit 1 ;; esac"
            ),
            "no buildx plugin",
        ),
    ],
)
def test_an_engine_that_cannot_build_is_unavailable_with_what_to_install(
    docker: MockPath, script: str, said: str
) -> None:
    docker.add("docker", script)
    with pytest.raises(Unavailable, match=said) as caught:
        Buildx().check()
    assert caught.value.exit_code == 69
    assert "install Docker Engine 25 and buildx 0.17 or newer" in caught.value.resolution
    assert caught.value.details


@pytest.mark.parametrize(
    ("server", "buildx", "said", "found"),
    [
        ("24.0.9", "v0.29.1", "Docker Engine 25.0 or newer", "Docker Engine here is 24.0.9"),
        ("26.1.5+dfsg1", "0.13.1+ds1-3", "buildx 0.17 or newer", "buildx here is 0.13.1+ds1-3"),
    ],
)
def test_an_engine_or_a_plugin_that_is_too_old_is_named(
    docker: MockPath, server: str, buildx: str, said: str, found: str
) -> None:
    docker.add(
        "docker",
        f'case "$1" in version) echo {server} ;; buildx) echo "github.com/docker/buildx {buildx} abc" '
        f";; esac",
    )
    with pytest.raises(Unavailable, match=said) as caught:
        Buildx().check()
    assert caught.value.details == (found,)


@pytest.mark.parametrize(
    ("server", "buildx"), [("25.0.0", "v0.17.0"), ("28.5.2+dfsg4", "0.29.1+ds1-4"), ("dev", "local")]
)
def test_an_engine_that_is_new_enough_or_has_no_number_is_taken(
    docker: MockPath, server: str, buildx: str
) -> None:
    docker.add(
        "docker",
        f'case "$1" in version) echo {server} ;; buildx) echo "github.com/docker/buildx {buildx} abc" '
        f";; esac",
    )
    assert Buildx().check() == f"docker {server}, buildx {buildx}"


def test_no_docker_command_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="docker cannot be started") as caught:
        Buildx().check()
    assert caught.value.exit_code == 69


def test_engine_names_its_versions(docker: MockPath) -> None:
    docker.add(
        "docker",
        'case "$1" in version) echo 28.5.2 ;; buildx) echo "github.com/docker/buildx 0.29.1 abc" ;; esac',
    )
    assert Buildx().check() == "docker 28.5.2, buildx 0.29.1"


INSPECTED = "case $* in *inspect*) echo 'Name:   farm'; echo 'Driver: remote' ;; *version*) %s ;; esac"


def test_a_builder_that_pushes_needs_no_engine_and_is_started(docker: MockPath) -> None:
    docker.add("docker", INSPECTED % 'echo "github.com/docker/buildx 0.29.1 abc"')
    assert Buildx(builder="farm", keeps=False).check() == "buildx 0.29.1, builder farm (remote)"
    assert "buildx inspect --bootstrap farm" in docker.calls("docker")
    assert not any("Server.Version" in call for call in docker.calls("docker"))
    assert Buildx(builder="farm").network() == "", "the network is that of the builder"


def test_a_builder_that_does_not_answer_is_named(docker: MockPath) -> None:
    docker.add(
        "docker",
        'case "$*" in *inspect*) echo "ERROR: no builder \\"farm\\" found" >&2; exit 1 ;; '
        '*) echo "github.com/docker/buildx 0.29.1 abc" ;; esac',
    )
    with pytest.raises(Unavailable, match="the builder farm does not answer") as caught:
        Buildx(builder="farm", keeps=False).check()
    assert caught.value.details == ('ERROR: no builder "farm" found',)


@pytest.mark.parametrize(
    ("program", "said", "told"),
    [
        ("buildah", "buildah version 1.28.2 (image-spec 1.1.0-rc2)", "buildah 1.41 or newer is needed"),
        ("podman", "podman version 4.3.1", "podman 5.6 or newer is needed"),
    ],
)
def test_a_podman_or_buildah_that_is_too_old_is_named(
    docker: MockPath, program: str, said: str, told: str
) -> None:
    docker.add(program, f"echo '{said}'")
    with pytest.raises(Unavailable, match=told):
        Buildah(program).check()
    docker.add(program, f"echo 'level=warning msg=\"cgroups-v1\"' >&2; echo '{program} version 9.0.1'")
    assert Buildah(program).check() == f"{program} 9.0.1"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("received unexpected HTTP status: 503 Service Unavailable", TemporaryFailure),
        ("writing blob: blob upload invalid", CommandFailed),
        ("authentication required", NotPermitted),
    ],
)
def test_a_push_by_buildah_to_a_busy_registry_may_be_tried_again(
    docker: MockPath, said: str, kind: type[DriverforgeError]
) -> None:
    docker.add("buildah", f"echo 'Error: trying to reuse blob: {said}' >&2; exit 125")
    with pytest.raises(DriverforgeError) as caught:
        Buildah("buildah").push("driver:a", "registry.site/nvidia/driver:a", lambda _: None)
    assert type(caught.value) is kind


def test_a_missing_podman_says_which_to_install(docker: MockPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(docker.folder))
    with pytest.raises(Unavailable, match="podman cannot be started") as caught:
        Buildah("podman").check()
    assert caught.value.resolution == "install podman 5.6 or newer, or build with docker"


def test_a_log_that_cannot_be_written_stops_before_the_command(docker: MockPath, tmp_path: Path) -> None:
    docker.add("docker")
    (tmp_path / "logs").write_text("a file, no folder")
    with pytest.raises(StorageFailed, match="cannot be written"):
        run_logged(["docker", "x"], log=tmp_path / "logs/a.log", cwd=tmp_path)
    assert docker.calls("docker") == []


def test_a_program_answers_what_it_is_given_and_its_errors_go_nowhere(
    docker: MockPath, capfd: pytest.CaptureFixture[str]
) -> None:
    docker.add("helper", 'echo "secret" >&2; echo "got $(cat)"; exit 3')
    assert answer(["helper", "get"], b"registry.site") == (3, b"got registry.site\n")
    assert docker.calls("helper") == ["get"]
    assert capfd.readouterr() == ("", "")


def test_a_program_that_does_not_answer_is_left(docker: MockPath) -> None:
    docker.add("helper", "exec tail -f /dev/null")
    with pytest.raises(TimeoutError):
        answer(["helper", "get"], b"", patience=0.2)
    with pytest.raises(FileNotFoundError):
        answer(["no-such-helper", "get"], b"")
