"""Run one container of a Kubernetes manifest in a guest's containerd, as a kubelet would have it run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driverforge_core.errors import CommandFailed
from support.machines.guest import Guest, GuestResult
from support.machines.podspec import HostPath, NodeFacts, Pod, translate
from support.machines.store import StoredImage

_CTR = "ctr --namespace k8s.io"
# /dev of a privileged container is a tmpfs with a node for each device that the host has when it starts
_FACTS = r"""
python3 - <<'X'
import json, os, stat
skip = {"pts", "shm", "fd", "mqueue", "console", ".udev"}
devices = []
def walk(folder):
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.name in skip or entry.is_symlink():
            continue
        if entry.is_dir():
            walk(entry.path)
        elif stat.S_ISCHR(mode := entry.stat(follow_symlinks=False).st_mode) or stat.S_ISBLK(mode):
            info = entry.stat(follow_symlinks=False)
            devices.append({
                "path": entry.path, "type": "c" if stat.S_ISCHR(mode) else "b",
                "major": os.major(info.st_rdev), "minor": os.minor(info.st_rdev),
                "fileMode": stat.S_IMODE(mode), "uid": info.st_uid, "gid": info.st_gid,
            })
walk("/dev")
bounding = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapBnd"))
print(json.dumps({"devices": devices, "bounding": int(bounding, 16)}))
X
"""
# capability(7), in the kernel's order
_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    *(
        "SETPCAP",
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
        "IPC_LOCK",
        "IPC_OWNER",
    ),
    *(
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
    ),
    *(
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "MKNOD",
        "LEASE",
        "AUDIT_WRITE",
        "AUDIT_CONTROL",
        "SETFCAP",
    ),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPod:
    """A container that was started in a guest."""

    guest: Guest
    pod: Pod
    container_id: str

    @property
    def log_file(self) -> str:
        """Where its stdout and stderr are, in the guest."""
        return f"/var/log/pods/{self.container_id}.log"

    def logs(self) -> str:
        return self.guest.run(f"cat {self.log_file}").ok()

    def exec(self, *words: str, timeout: float = 120) -> GuestResult:
        """Run a program in the container, as `kubectl exec` or an exec probe does."""
        command = shlex.join(words)
        return self.guest.run(
            f"{_CTR} tasks exec --exec-id exec-$$-$RANDOM {self.container_id} {command}", timeout=timeout
        )

    def running(self) -> bool:
        listed = self.guest.run(f"{_CTR} tasks ls").ok()
        return any(line.split()[0] == self.container_id and "RUNNING" in line for line in listed.splitlines())

    def signal(self, name: str = "SIGTERM") -> None:
        """Send a signal to the container's first process."""
        self.guest.run(f"{_CTR} tasks kill --signal {name} {self.container_id}").ok()

    def wait(self, *, timeout: float) -> int:
        """Wait until the container's first process has ended; returns its exit status.

        Raises TemporaryFailure after `timeout` seconds.
        """
        script = f"""
            pid=$({_CTR} tasks ls | awk '$1 == "{self.container_id}" {{print $2}}')
            tail --pid="$pid" --sleep-interval=0.1 -f /dev/null
            until {_CTR} tasks ls | grep -q '^{self.container_id} .*STOPPED'; do sleep 0.1; done
            {_CTR} tasks delete {self.container_id} 2>&1
        """
        said = self.guest.run(script, timeout=timeout).ok()
        found = re.search(r"non-zero exit code (\d+)", said)  # ctr 1.6 says it in a warning and exits with 0
        return int(found[1]) if found else 0

    def remove(self) -> None:
        """Remove the container and its file system, killing it if it runs."""
        self.guest.run(
            f"{_CTR} tasks delete --force {self.container_id} >/dev/null 2>&1; "
            f"{_CTR} containers rm {self.container_id}"
        ).ok()
        self.guest.run(f"umount {self.root} && {_CTR} snapshots rm {self.container_id}").ok()

    @property
    def root(self) -> str:
        """Where its file system is mounted, in the guest."""
        return f"/run/driverforge/rootfs/{self.container_id}"


def node_facts(guest: Guest) -> NodeFacts:
    """Device nodes and capabilities of a guest."""
    seen = json.loads(guest.run(_FACTS).ok())
    held = [f"CAP_{name}" for number, name in enumerate(_CAPABILITIES) if seen["bounding"] >> number & 1]
    return NodeFacts(devices=seen["devices"], capabilities=held)


def run(
    guest: Guest,
    manifest: Path,
    *,
    image: StoredImage,
    kind: str = "DaemonSet",
    container: str = "",
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    container_id: str = "",
) -> GuestPod:
    """Start one container of a manifest and return at once.

    The guest's containerd must have `image` (`store.attach`).
    """
    documents: list[Mapping[str, Any]] = list(yaml.safe_load_all(manifest.read_text()))
    pod = translate(
        documents,
        image=image,
        node=node_facts(guest),
        kind=kind,
        container=container,
        arguments=arguments,
        environment=environment,
    )
    started = GuestPod(guest=guest, pod=pod, container_id=container_id or pod.container)
    guest.run("\n".join(["set -e", *(host_path(path) for path in pod.host_paths)])).ok()
    root = started.root
    spec = {**pod.spec, "root": {**pod.spec["root"], "path": root}}
    config = f"/run/driverforge/{started.container_id}.json"
    guest.put({config: json.dumps(spec)})
    script = f"""
        set -e
        mkdir -p {root} /var/log/pods
        {_CTR} snapshots prepare {started.container_id} {image.chain} >/dev/null
        sh -c "$({_CTR} snapshots mounts {root} {started.container_id})"
        {_CTR} run --detach --log-uri file://{started.log_file} --config {config} {started.container_id}
    """
    outcome = guest.run(script)
    if outcome.rc != 0:
        raise CommandFailed(
            f"containerd in the guest did not start {started.container_id}", details=[outcome.output]
        )
    return started


def host_path(volume: HostPath) -> str:
    """What the kubelet (or, where no type is given, containerd) does about a host path before the mount.

    Returns lines for a shell.
    """
    path = shlex.quote(volume.path)
    create = {
        "": f"mkdir -p -m 755 {path}",
        "DirectoryOrCreate": f"mkdir -p -m 755 {path}",
        "FileOrCreate": f": >{path}",
    }
    test = {"Directory": "-d", "File": "-f", "Socket": "-S", "CharDevice": "-c", "BlockDevice": "-b"}.get(
        volume.kind.removesuffix("OrCreate")
    )
    made = f"[ -e {path} ] || {create[volume.kind]}" if volume.kind in create else ":"
    refusal = f"hostPath type check failed: {volume.path} is not a {volume.kind.removesuffix('OrCreate')}"
    return f"{made}\n[ {test} {path} ] || {{ echo {shlex.quote(refusal)}; exit 1; }}" if test else made
