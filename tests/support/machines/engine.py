"""A Docker engine with BuildKit: the one that is there, else one of our own.

Ours leaves the machine as it was. It is made of a newer Debian suite's packages, unpacked under a prefix in
the cache, and lives in its own mount and PID namespaces. When it ends, or whoever started it does, its
processes and mounts are gone. It changes no firewall rule and no forwarding setting, and makes no bridge. So
its builds and containers use the host's network (`Engine.network`).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from driverforge_core.errors import DriverforgeError, Unavailable
from support import aptfetch, cache
from support.machines import rootfs
from support.process import Finished, children, require, run, start, stop, until

_SUITES = ("sid", "trixie")  # the newest whose programs run on this machine's C library
_ENGINE = ("docker.io", "docker-cli", "containerd", "docker-buildx", "docker-compose", "tini-static")
_LIBRARIES = ("libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libxtables12", "libgmp10")
_RUNC_SUITE = "bookworm"  # newer runc needs a newer C library
_PLUGINS = "usr/libexec/docker/cli-plugins"
_OLDEST = 25  # the first Docker whose BuildKit reads what we write without a frontend image
_OLDEST_BUILDX = (0, 17)
_DAEMON = {"features": {"containerd-snapshotter": True, "cdi": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine that answers. `stop` ends it if it is ours."""

    host: str  # DOCKER_HOST: 'unix:///…'
    config: Path | None  # DOCKER_CONFIG with the buildx and compose plugins; None: the user's own
    prefix: Path | None  # where our programs are; None: the user's own
    network: str  # what builds and containers pass as --network: 'host' for ours, 'default' else
    home: Path | None = None
    child: subprocess.Popen[bytes] | None = field(default=None, compare=False)
    # holds a shared lock for as long as we use our own engine
    user: IO[str] | None = field(default=None, compare=False)

    @property
    def owned(self) -> bool:
        """Whether this value started the engine and will stop it."""
        return self.child is not None

    def environment(self) -> dict[str, str]:
        """What makes `docker` and the Python SDK talk to this engine."""
        values = {"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "1"}
        if self.config:
            values["DOCKER_CONFIG"] = str(self.config)
        if self.prefix:
            values["PATH"] = f"{self.prefix / 'usr/bin'}:{os.environ['PATH']}"
        return values

    def docker(
        self, *words: str | Path, check: bool = True, stdin: str | None = None, timeout: float | None = None
    ) -> Finished:
        """Run the docker command against this engine."""
        program = self.prefix / "usr/bin/docker" if self.prefix else "docker"
        return run(program, *words, check=check, env=self.environment(), stdin=stdin, timeout=timeout)

    def stop(self) -> None:
        """End our use of the engine.

        Its starter waits for other users, then ends it with its containers and mounts. The data stays.
        """
        if self.user is None:
            return
        if self.child is None or self.home is None:
            self.user.close()
            return
        fcntl.flock(self.user, fcntl.LOCK_EX)
        for pid in children(self.child.pid):
            os.kill(pid, signal.SIGTERM)  # tini, PID 1 of the namespace, hands it to dockerd
        stop(self.child, timeout=30, first=signal.SIGCONT)
        (self.home / "docker.sock").unlink(missing_ok=True)
        self.user.close()


def find() -> Engine:
    """An engine with BuildKit that the user has: $DOCKER_HOST or the default socket.

    Raises Unavailable with what was seen.
    """
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if shutil.which("docker") is None:
        raise Unavailable("no docker command on PATH")
    engine = Engine(host=host, config=None, prefix=None, network="default")
    answer = engine.docker("version", "--format", "{{.Server.Version}}", check=False, timeout=20)
    if answer.status != 0:
        raise Unavailable(f"no engine answers at {host}", details=[answer.stderr.strip()])
    version = answer.stdout.strip()
    major = re.match(r"\d+", version)  # a build from source may have a name instead of a number
    if major and int(major[0]) < _OLDEST:
        raise Unavailable(f"the engine at {host} is Docker {version}; {_OLDEST} or newer is needed")
    answer = engine.docker("buildx", "version", check=False)
    if answer.status != 0:
        raise Unavailable("docker has no buildx plugin")
    number = re.search(r" v?(\d+)\.(\d+)", answer.stdout)
    if number and (int(number[1]), int(number[2])) < _OLDEST_BUILDX:
        raise Unavailable(f"{answer.stdout.strip()} is older than 0.17")
    return engine


def find_or_start(home: Path | None = None) -> Engine:
    """The user's engine, else one of our own."""
    try:
        return find()
    except Unavailable:
        return start_own(home)


def start_own(home: Path | None = None) -> Engine:
    """Start our own engine, or join the one that runs there.

    Data, socket and logs are under `home`, by default in the cache. Needs root. Raises Unavailable or
    CommandFailed with the end of the daemon's log.
    """
    if os.geteuid() != 0:
        raise Unavailable(
            "an engine of our own needs root", resolution="run as root, or point DOCKER_HOST to an engine"
        )
    require("unshare", "mount", "setpriv")
    home = home or cache.root() / "engine"
    home.mkdir(parents=True, exist_ok=True)
    prefix = programs()
    with cache.locked(home / "lock"):
        engine = Engine(
            host=f"unix://{home}/docker.sock",
            config=_client_config(home, prefix),
            prefix=prefix,
            network="host",
            home=home,
        )
        user = (home / "users").open("a")
        try:
            fcntl.flock(user, fcntl.LOCK_SH)  # waits for one that is about to end the engine
            return replace(
                engine, child=None if _answers(engine) else _start(engine, home, prefix), user=user
            )
        except BaseException:
            user.close()
            raise


def _start(engine: Engine, home: Path, prefix: Path) -> subprocess.Popen[bytes]:
    # both name processes of a namespace that is gone; dockerd would take an unrelated process of that number
    # for itself
    for stale in (home / "docker.pid", home / "docker.sock"):
        stale.unlink(missing_ok=True)
    shutil.rmtree(home / "exec", ignore_errors=True)
    (home / "daemon.json").write_text(json.dumps(_DAEMON) + "\n")
    log = home / "dockerd.log"
    log.unlink(missing_ok=True)
    # `--bridge none` deletes a docker0 that another daemon has: use that one if it is there, make none if not
    bridge = "docker0" if Path("/sys/class/net/docker0").exists() else "none"
    daemon = [
        "dockerd",
        "-H",
        engine.host,
        "--data-root",
        f"{home}/data",
        "--exec-root",
        f"{home}/exec",
        "-p",
        f"{home}/docker.pid",
    ]
    daemon += ["--config-file", f"{home}/daemon.json", "--bridge", bridge]
    daemon += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    isolated = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    shell = ["sh", "-c", 'mount --make-rshared / && exec "$@"', "sh", f"{prefix}/usr/bin/tini-static", "--"]
    env = {
        "PATH": f"{prefix}/usr/sbin:{prefix}/usr/bin:"
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LD_LIBRARY_PATH": libraries(prefix),
    }
    child = start([*isolated, *shell, *daemon], log=log, env=env)
    try:
        until(lambda: _answers(engine), "dockerd", timeout=60, child=child, log=log)
    except BaseException:
        stop(child)
        raise
    return child


def _answers(engine: Engine) -> bool:
    return engine.docker("version", "--format", "{{.Server.Version}}", check=False, timeout=20).status == 0


def programs() -> Path:
    """The prefix with the programs of the newest suite whose programs run here.

    They are dockerd, docker, containerd, runc, buildx and compose.
    """
    refused: list[str] = []
    for suite in _SUITES:
        prefix = unpacked(suite)
        library = {"LD_LIBRARY_PATH": libraries(prefix)}
        try:
            for words in (
                (prefix / "usr/sbin/dockerd", library),
                (prefix / "usr/bin/containerd", {}),
                (prefix / "usr/sbin/runc", {}),
            ):
                run(words[0], "--version", env=words[1])
        except DriverforgeError as error:
            refused += [f"{suite}:", *error.details]
            continue
        return prefix
    raise Unavailable("no suite's Docker runs on this machine", details=refused)


def libraries(prefix: Path) -> str:
    """LD_LIBRARY_PATH of the programs in a prefix."""
    return ":".join(str(folder) for folder in sorted(prefix.glob("usr/lib/*-linux-gnu")))


def unpacked(suite: str, programs: Sequence[str] = _ENGINE) -> Path:
    """A prefix with dockerd and what it needs, of one suite.

    trixie has 26, but not all of the programs; sid has 28.
    """
    archive = aptfetch.archive()
    packages = [archive.newest(name, suite=suite) for name in (*programs, *_LIBRARIES)]
    packages.append(archive.newest("runc", suite=_RUNC_SUITE))
    return archive.unpacked(packages)


def _client_config(home: Path, prefix: Path) -> Path:
    folder = home / "client/cli-plugins"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("docker-buildx", "docker-compose"):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(prefix / _PLUGINS / name)
    return folder.parent


def base_tar(suite: str, arch: str = "") -> Path:
    """A cached tar of a minimal Debian of a suite, whose apt configuration names this machine's mirror.

    `arch` is another architecture than this machine's; its programs have to start here.
    """
    archive = aptfetch.archive()
    inputs = {
        "suite": suite,
        "mirror": archive.mirror,
        "base": str(archive.newest("base-files", suite=suite)),
        "layout": 1,
        "arch": arch,
    }

    def make(folder: Path) -> None:
        rootfs.bootstrap(suite, folder / "base.tar", arch=arch)

    return cache.cached("base", inputs, make) / "base.tar"


def debian_base(engine: Engine, suite: str = "bookworm", arch: str = "") -> str:
    """Import a minimal Debian into an engine as a base image, unless it is there.

    Returns the image's name: 'driverforge-base:bookworm', '…:bookworm-arm64' of another architecture.
    """
    tar = base_tar(suite, arch)
    name = f"driverforge-base:{suite}{arch and f'-{arch}'}"
    import_once(engine, tar, name, label=tar.parent.name, arch=arch)
    return name


def import_once(engine: Engine, tar: Path, name: str, *, label: str, arch: str = "") -> None:
    """Import a root file system as an image, unless there is one of that name and label."""
    # an engine refuses a name that another test worker gave to an image a moment ago: "already exists"
    with cache.locked(cache.root() / "engine-import.lock"):
        seen = engine.docker(
            "image",
            "inspect",
            "--format",
            '{{index .Config.Labels "io.driverforge.bench"}}',
            name,
            check=False,
        )
        if seen.status == 0 and seen.stdout.strip() == label:
            return
        changes: Mapping[str, str] = {
            "CMD": '["/bin/bash"]',
            # an engine adds one by itself, containerd's CRI does not
            "ENV": "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LABEL": f"io.driverforge.bench={label}",
        }
        options = [word for key, value in changes.items() for word in ("--change", f"{key} {value}")]
        if arch:
            options += ["--platform", f"linux/{arch}"]
        engine.docker("import", *options, tar, name)
