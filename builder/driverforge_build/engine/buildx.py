"""The docker engine: `docker buildx bake` builds, as a person would type it; the SDK does the rest.

A builder that buildx knows by name (docker-container, kubernetes, remote) may do the building.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from driverforge_build.engine import process, store
from driverforge_build.engine.passing import passing_reason
from driverforge_build.ports import BuildJob, BuiltImage, StepListener
from driverforge_core.errors import Unavailable
from driverforge_oci.auth import LoginFor, nobody
from driverforge_oci.reference import Reference

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Build arguments that BuildKit knows without a declaration, and keeps out of history and provenance."""

_STEP = re.compile(r"#\d+ \[(?:\S+ )?(?P<stage>\S+) +(?P<number>\d+)/(?P<count>\d+)\] (?P<what>.*)")
ENGINE = (25, 0)
"""The first Docker Engine whose own Dockerfile frontend knows `ADD --checksum` (frontend 1.6, BuildKit 0.12).
"""
BUILDX = (0, 17)
"""The first buildx whose `bake` knows `--allow`."""

BOOTSTRAP_S = 600.0
"""For a builder to start, whose own image may have to be pulled first."""

INSTALL = (
    "install Docker Engine 25 and buildx 0.17 or newer (Debian 13's buildx is older: "
    "docker-buildx-plugin of Docker's own packages)"
)
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


class Buildx:
    """The engine that the docker command talks to: DOCKER_HOST, DOCKER_CONFIG and contexts work.

    `login_for` is asked for the login that a push needs. `builder` is the name of a builder. `keeps`: whether
    images go into the engine's store; if not, and a builder does the work, no engine needs to be there.
    `plain_http` are registries without TLS that a builder may push to; an engine knows its own.
    """

    makes_images = True

    def __init__(
        self,
        login_for: LoginFor = nobody,
        *,
        builder: str = "",
        keeps: bool = True,
        plain_http: Collection[str] = (),
    ) -> None:
        self._login_for = login_for
        self._plain_http = plain_http
        self._builder = builder
        self._keeps = keeps

    def check(self) -> str:
        parts = [*([self._check_engine()] if self._keeps or not self._builder else []), _check_buildx()]
        return ", ".join([*parts, *([self._check_builder()] if self._builder else [])])

    def _check_engine(self) -> str:
        status, said = process.output(
            ["docker", "version", "--format", "{{.Server.Version}}"], install=INSTALL
        )
        if status:
            raise Unavailable(
                "no docker engine answers",
                details=said.splitlines()[-3:],
                resolution=f"{INSTALL}; or set DOCKER_HOST to an engine that runs",
            )
        server = said.strip().splitlines()[-1]
        require_version(
            "Docker Engine", server, ENGINE, resolution=f"{INSTALL}; or set DOCKER_HOST to a newer engine"
        )
        return f"docker {server}"

    def _check_builder(self) -> str:
        """Start a builder that does not run yet: a container's, or pods."""
        status, said = process.output(
            ["docker", "buildx", "inspect", "--bootstrap", self._builder], patience=BOOTSTRAP_S
        )
        if status:
            raise Unavailable(
                f"the builder {self._builder} does not answer",
                details=said.splitlines()[-3:],
                resolution="docker buildx ls   (shows the builders that there are, and their state)",
            )
        driver = next((line.split()[1] for line in said.splitlines() if line.startswith("Driver:")), "?")
        return f"builder {self._builder} ({driver})"

    def network(self) -> str:
        if self._builder:
            return ""
        # a nested daemon may be started without its default network
        return "" if process.output(["docker", "network", "inspect", "bridge"])[0] == 0 else "host"

    def build(self, job: BuildJob, progress: StepListener) -> str:
        def told(line: str) -> None:
            if found := _STEP.match(line):
                step = f"{found['stage']} {found['number']}/{found['count']}"
                progress(f"{step} {process.short(found['what'])}")
            elif "exporting layers" in line and "done" not in line:
                progress("exporting layers")

        process.run_logged(
            bake_command(job, environment=os.environ, builder=self._builder, plain_http=self._plain_http),
            log=job.log,
            cwd=job.bake_file.parent,
            environment={"BUILDX_NO_DEFAULT_ATTESTATIONS": "1", "DOCKER_CLI_HINTS": "false"},
            on_line=told,
            passing=passing_reason,
        )
        if not job.remote or job.output:
            return ""
        return str(json.loads(_pushed_file(job).read_bytes())[job.target]["containerimage.digest"])

    def inspect(self, reference: str) -> BuiltImage | None:
        return store.inspect(reference)

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        to = Reference.parse(remote)
        store.push(reference, to, self._login_for(to.host, to.repository), progress)

    def pull(self, remote: str, reference: str, platform: str) -> None:
        place = Reference.parse(remote)
        login = self._login_for(place.host, place.repository)
        store.pull(place, Reference.parse(reference), platform, login)

    def files(self, reference: str, folder: str) -> Mapping[str, bytes] | None:
        return store.files(reference, folder)


def _check_buildx() -> str:
    # "github.com/docker/buildx v0.29.1 <commit>"
    status, said = process.output(["docker", "buildx", "version"], install=INSTALL)
    if status:
        raise Unavailable("docker has no buildx plugin", details=said.splitlines()[:3], resolution=INSTALL)
    buildx = " ".join(said.split()[1:2])
    require_version("buildx", buildx, BUILDX, resolution=INSTALL)
    return f"buildx {buildx}"


def require_version(what: str, version: str, oldest: tuple[int, int], *, resolution: str) -> None:
    """Raises Unavailable for one that is too old.

    A build from source may have a name instead of a number: it is believed.
    """
    found = _VERSION.match(version)
    if found and (int(found[1]), int(found[2])) < oldest:
        raise Unavailable(
            f"{what} {'.'.join(map(str, oldest))} or newer is needed",
            details=[f"{what} here is {version}"],
            resolution=resolution,
        )


def bake_command(
    job: BuildJob,
    *,
    environment: Mapping[str, str],
    builder: str = "",
    plain_http: Collection[str] = (),
) -> list[str]:
    """The command line of one build: the image is loaded into the engine's store, or pushed.

    Values of proxy variables are not in it: bake reads them from the environment.
    """
    proxies = [name for name in PROXY_VARIABLES if environment.get(name)]
    return [
        *("docker", "buildx", "bake", "--file", job.bake_file.name, "--progress", "plain"),
        *(["--builder", builder] if builder else []),
        *_result(job, plain_http),
        *(["--no-cache"] if job.no_cache else []),
        *(part for name in proxies for part in ("--set", f"*.args.{name}")),
        *(
            part
            for name, value in sorted(job.arguments.items())
            for part in ("--set", f"*.args.{name}={value}")
        ),
        *(
            part
            for name, file in sorted(job.secrets.items())
            for part in ("--set", f"*.secrets=id={name},src={file}", f"--allow=fs.read={file}")
        ),
        *(
            part
            for name, folder in sorted(job.contexts.items())
            for part in ("--set", f"*.contexts.{name}={folder}", f"--allow=fs.read={folder}")
        ),
        *(["--allow=network.host"] if job.network == "host" else []),
        job.target,
    ]


def _result(job: BuildJob, plain_http: Collection[str]) -> list[str]:
    """Where the result goes: into a folder, to a registry, or into the engine's store."""
    if job.output:
        to = f"type=local,dest={job.output}"
        words = ["--set", f"{job.target}.target={job.stage}", "--set", f"{job.target}.output={to}"]
        return [*words, f"--allow=fs.write={job.output}"]
    if job.remote:
        # without a tag: another builder may have written it meanwhile, and it is written once
        remote = Reference.parse(job.remote)
        words = ["--set", f"{job.target}.tags={remote.name}"]
        to = "type=image,push=true,push-by-digest=true,name-canonical=true"
        to += ",registry.insecure=true" if remote.host in plain_http else ""
        return [*words, "--set", f"{job.target}.output={to}", "--metadata-file", str(_pushed_file(job))]
    return ["--load"]


def _pushed_file(job: BuildJob) -> Path:
    """Where buildx writes what it pushed."""
    return job.log.with_suffix(".pushed.json")
