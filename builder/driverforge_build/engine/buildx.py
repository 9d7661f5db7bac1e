"""The docker engine: `docker buildx bake` builds, as a person would type it; the SDK does the rest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from driverforge_build.engine import images, process
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

INSTALL = (
    "install Docker Engine 25 and buildx 0.17 or newer (Debian 13's buildx is older: "
    "docker-buildx-plugin of Docker's own packages)"
)
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


class Buildx:
    """The engine that the docker command talks to: DOCKER_HOST, DOCKER_CONFIG and contexts work.

    `login_for` is asked for the login that a push needs.
    """

    def __init__(self, login_for: LoginFor = nobody) -> None:
        self._login_for = login_for

    def check(self) -> str:
        status, said = process.output(["docker", "version", "--format", "{{.Server.Version}}"])
        if status:
            raise Unavailable(
                "no docker engine answers",
                details=said.splitlines()[-3:],
                resolution=f"{INSTALL}; or set DOCKER_HOST to an engine that runs",
            )
        server = said.strip().splitlines()[-1]
        _require(
            "Docker Engine", server, ENGINE, resolution=f"{INSTALL}; or set DOCKER_HOST to a newer engine"
        )
        # "github.com/docker/buildx v0.29.1 <commit>"
        status, said = process.output(["docker", "buildx", "version"])
        if status:
            raise Unavailable(
                "docker has no buildx plugin", details=said.splitlines()[:3], resolution=INSTALL
            )
        buildx = " ".join(said.split()[1:2])
        _require("buildx", buildx, BUILDX, resolution=INSTALL)
        return f"docker {server}, buildx {buildx}"

    def network(self) -> str:
        # a nested daemon may be started without its default network
        return "" if process.output(["docker", "network", "inspect", "bridge"])[0] == 0 else "host"

    def build(self, job: BuildJob, progress: StepListener) -> None:
        def told(line: str) -> None:
            if found := _STEP.match(line):
                progress(f"{found['stage']} {found['number']}/{found['count']} {_short(found['what'])}")
            elif "exporting layers" in line and "done" not in line:
                progress("exporting layers")

        process.run_logged(
            bake_command(job, environment=os.environ),
            log=job.log,
            cwd=job.bake_file.parent,
            environment={"BUILDX_NO_DEFAULT_ATTESTATIONS": "1", "DOCKER_CLI_HINTS": "false"},
            on_line=told,
            passing=passing_reason,
        )

    def inspect(self, reference: str) -> BuiltImage | None:
        return images.inspect(reference)

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        to = Reference.parse(remote)
        images.push(reference, to, self._login_for(to.host, to.repository), progress)

    def files(self, reference: str, folder: str) -> Mapping[str, bytes] | None:
        return images.files(reference, folder)


def _require(what: str, version: str, oldest: tuple[int, int], *, resolution: str) -> None:
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


def bake_command(job: BuildJob, *, environment: Mapping[str, str]) -> list[str]:
    """The command line of one build.

    Values of proxy variables are not in it: bake reads them from the environment.
    """
    proxies = [name for name in PROXY_VARIABLES if environment.get(name)]
    return [
        *("docker", "buildx", "bake", "--file", job.bake_file.name, "--progress", "plain", "--load"),
        *(["--no-cache"] if job.no_cache else []),
        *(part for name in proxies for part in ("--set", f"*.args.{name}")),
        *(
            part
            for name, file in sorted(job.secrets.items())
            for part in ("--set", f"*.secrets=id={name},src={file}", f"--allow=fs.read={file}")
        ),
        *(["--allow=network.host"] if job.network == "host" else []),
        job.target,
    ]


def _short(instruction: str) -> str:
    """What a RUN does, without its mounts."""
    words = [word for word in instruction.split() if not word.startswith("--mount=")]
    return " ".join(words)[:100]
