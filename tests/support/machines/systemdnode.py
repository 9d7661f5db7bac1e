"""A node in a container of the test's engine: systemd is PID 1, and a unit runs containerd.

It shares the machine's kernel and network. Its `/` is shared, as systemd makes it on a real node. It starts
no unit that writes the machine's kernel settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.machines.engine import Engine
from support.process import Finished, until

_PACKAGES = ("systemd", "systemd-sysv", "dbus", "containerd", "runc", "procps", "kmod", "iproute2")
# logins cost time; systemd-sysctl would write to the kernel that the machine uses
_MASKED = ("getty@tty1", "console-getty", "systemd-logind", "systemd-sysctl")
# overlayfs cannot have its upper folder on an overlay, which the container's root is
_VOLUMES = ("/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdNode:
    """A node that runs."""

    engine: Engine
    container: str

    def run(self, script: str, *, check: bool = True, stdin: str | None = None) -> Finished:
        """Run a sh script on the node, with `set -e`.

        With `check` it raises CommandFailed if the script ends with another status than 0.
        """
        given = ["--interactive"] if stdin is not None else []
        return self.engine.docker(
            "exec", *given, self.container, "sh", "-ec", script, check=check, stdin=stdin
        )

    def put(self, path: str, text: str) -> None:
        """Write a file, and the folders above it."""
        self.run(f"mkdir -p {Path(path).parent} && cat >{path}", stdin=text)

    def unit(self, name: str, *properties: str) -> tuple[str, ...]:
        """Values of properties of a unit, as `systemctl show` prints them."""
        words = " ".join(f"--property={name}" for name in properties)
        shown = dict(
            line.split("=", 1) for line in self.run(f"systemctl show {name} {words}").stdout.splitlines()
        )
        return tuple(shown[name] for name in properties)

    def reboot(self) -> None:
        """Cut the power, and start the node again: every process is gone, and what /run had."""
        self.engine.docker("restart", "--time", "0", self.container)
        self.run("mount --make-rshared /")
        until(lambda: _started(self), "systemd")

    def journal(self, unit: str, lines: int = 60) -> list[str]:
        """The end of a unit's log."""
        return self.run(
            f"journalctl --no-pager --lines={lines} --unit={unit}", check=False
        ).stdout.splitlines()


@contextmanager
def systemd_node(
    engine: Engine, base: str, *, mounts: Mapping[str, Path], name: str = "node"
) -> Iterator[SystemdNode]:
    """Start a node made of the Debian image `base`; yields when systemd has started its units.

    The node is removed with all its data. `mounts` maps a path on the node to the machine's file or folder
    that is mounted there, read-only.
    """
    binds = [word for path, source in mounts.items() for word in ("--volume", f"{source}:{path}:ro")]
    volumes = [word for path in _VOLUMES for word in ("--volume", path)]
    tmpfs = [word for path in ("/run", "/run/lock", "/tmp") for word in ("--tmpfs", f"{path}:exec")]
    # --rm: an engine that was killed with the test run removes the node when it starts again
    words = [
        "--detach",
        "--rm",
        "--privileged",
        "--cgroupns",
        "private",
        "--network",
        "host",
        "--hostname",
        name,
        *tmpfs,
        *volumes,
        *binds,
    ]
    node = SystemdNode(
        engine=engine, container=engine.docker("run", *words, _image(engine, base)).stdout.strip()
    )
    try:
        node.run("mount --make-rshared /")
        until(lambda: _started(node), "systemd")
        yield node
    finally:
        # an error where --rm was faster
        engine.docker("rm", "--force", "--volumes", node.container, check=False)


def _started(node: SystemdNode) -> bool:
    # 'degraded' where a unit failed: which one is for the tests that need it
    return node.run("systemctl is-system-running", check=False).stdout.strip() in ("running", "degraded")


def _image(engine: Engine, base: str, packages: Sequence[str] = _PACKAGES) -> str:
    tag = f"driverforge-bench/node:{base.rpartition(':')[2]}"
    install = (
        f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)} && apt-get clean"
    )
    steps = [
        f"FROM {base}",
        f"RUN export DEBIAN_FRONTEND=noninteractive; {install} && systemctl mask {' '.join(_MASKED)}",
        'CMD ["/sbin/init"]',
    ]
    words = ["buildx", "build", "--network", engine.network, "--load", "--tag", tag, "-"]
    engine.docker(*words, stdin="\n".join(steps) + "\n")
    return tag
