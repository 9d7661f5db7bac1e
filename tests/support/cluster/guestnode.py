"""A node with a real kernel: a kubelet under systemd in a guest, for the API server on this machine.

It runs what the API server gives it, or one static pod, whose manifest lies on the node: so it has its pod
without a network, too, from the images that its containerd holds. While there is one, the pod is to be seen
in the API as any other. A pod's own network is a second address of the guest's card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driverforge_core.errors import CommandFailed
from support import aptfetch
from support.cluster.kubelet import CONTAINERD, configuration
from support.cluster.kubernetes import Api
from support.machines import kmods, qemu
from support.machines.guest import Content, Guest

_RECORDS = "/var/log/processes"  # a file for each boot: the kernel's record of every process that ended
_PODS = "http://127.0.0.1:10255/pods"  # where the kubelet tells of its pods, with or without an API server
_ADDRESSES = {
    "subnet": "10.0.2.0/24",
    "rangeStart": "10.0.2.50",
    "rangeEnd": "10.0.2.99",
    "gateway": qemu.HERE,
}
_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "bench",
    "plugins": [
        {
            "type": "macvlan",
            "master": "eth0",
            "ipam": {"type": "host-local", "ranges": [[_ADDRESSES]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}
_DNS = "10.0.2.3"  # of QEMU's network; it knows what this machine knows
_MANIFESTS = "/etc/kubernetes/manifests"
_PLUGINS = ("macvlan", "host-local", "loopback")
_HARDWARE = f"""#!/bin/bash
# what firmware and a network service do on a node of metal
insmod /bench/fakegpu.ko {kmods.GPU_PARAMETERS}
modprobe virtio_net
until [ -e /sys/class/net/eth0 ]; do sleep 0.1; done
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip link set lo up
ip route add default via {qemu.HERE}
exec python3 - <<'CODE'
import ctypes, os
os.makedirs("{_RECORDS}", exist_ok=True)
record = "{_RECORDS}/" + open("/proc/sys/kernel/random/boot_id").read().strip()
open(record, "w").close()
if ctypes.CDLL(None).acct(record.encode()) != 0:
    raise SystemExit("this kernel does not record processes")
CODE
"""
# struct acct_v3 of linux/acct.h: 64 bytes, the last 16 of them the program's name
_ENDED = f"""
record = "{_RECORDS}/" + open("/proc/sys/kernel/random/boot_id").read().strip()
data = open(record, "rb").read()
rows = [data[start:start + 64] for start in range(0, len(data) - 63, 64)]
print(*sorted({{row[48:].split(b"\\0")[0].decode(errors="replace") for row in rows}}), sep="\\n")
"""
# asks every second: each look costs the guest's processors, which are slow, a part of one
_WAIT = f"""
import json, time, urllib.request
end = time.monotonic() + SECONDS
while True:
    try:
        pods = json.load(urllib.request.urlopen("{_PODS}", timeout=20))["items"] or []
    except OSError:
        pods = []
    for pod in pods:
        conditions = pod["status"].get("conditions", [])
        if any(row["type"] == "Ready" and row["status"] == "True" for row in conditions):
            print(json.dumps(pod))
            raise SystemExit
    if time.monotonic() > end:
        raise SystemExit(f"not Ready: {{json.dumps(pods, indent=1)}}")
    time.sleep(1)
"""
_HARDWARE_UNIT = """[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bench/hardware
"""
_KUBELET_UNIT = """[Unit]
After=containerd.service hardware.service
Wants=containerd.service hardware.service
[Service]
ExecStart=/bench/kubelet --config=/etc/kubelet.json --kubeconfig=/etc/kubeconfig \
--hostname-override={name} --cert-dir=/var/lib/kubelet/pki --node-labels={labels}
Restart=always
RestartSec=1
KillMode=process
[Install]
WantedBy=multi-user.target
"""


class GuestNode:
    """A node in a guest. `name` is one for which `api` knows a token."""

    def __init__(self, guest: Guest, api: Api, name: str) -> None:
        self.guest = guest
        self.api = api
        self.name = name

    def join(
        self, kubelet: Path, fakegpu: Path, pod: Mapping[str, Any] | None = None, *, registry: str = ""
    ) -> None:
        """Install the kubelet and maybe a static pod, and start it. A reboot starts it again.

        The node has the labels that the pod's node selector asks for. `registry` is HOST:PORT of one on this
        machine's loopback, from which the node pulls by that very name.
        """
        archive = aptfetch.archive()
        plugins = archive.unpacked([archive.newest("containernetworking-plugins", suite="bookworm")])
        settings = {
            "enableServer": True,
            "address": "127.0.0.1",
            "readOnlyPort": 10255,
            "staticPodPath": _MANIFESTS,
            "clusterDNS": [_DNS],  # else each pod is warned about, again and again
        }
        selector = pod["spec"].get("nodeSelector", {}) if pod else {}
        labels = ",".join(f"{name}={value}" for name, value in selector.items())
        files: dict[str, Content] = {
            "/bench/kubelet": kubelet,
            "/bench/fakegpu.ko": fakegpu / "fakegpu.ko",
            "/bench/hardware": _HARDWARE,
            **{f"/usr/lib/cni/{name}": plugins / "usr/lib/cni" / name for name in _PLUGINS},
            "/etc/cni/net.d/10-bench.conflist": json.dumps(_NETWORK),
            "/etc/containerd/config.toml": CONTAINERD["bookworm"],
            "/etc/kubeconfig": self.api.kubeconfig(self.name, host=qemu.HERE),
            "/etc/kubelet.json": configuration(**settings),
            **({f"{_MANIFESTS}/driver.json": json.dumps(pod)} if pod else {}),
            **(_mirror(registry) if registry else {}),
            "/etc/systemd/system/hardware.service": _HARDWARE_UNIT,
            "/etc/systemd/system/kubelet.service": _KUBELET_UNIT.format(name=self.name, labels=labels),
        }
        self.guest.put(files, timeout=600)
        script = "systemctl daemon-reload && systemctl restart containerd && systemctl enable --now kubelet"
        self.guest.run(script, timeout=600).ok()

    def python(self, code: str, *, timeout: float = 120) -> str:
        """What a Python program prints on the node."""
        return self.guest.run(f"python3 - <<'CODE'\n{code}\nCODE\n", timeout=timeout).ok()

    def until_pod_ready(self, timeout: float) -> dict[str, Any]:
        """Wait until the kubelet calls its pod Ready, and return what it says of it.

        Raises CommandFailed with the logs of pod and kubelet.
        """
        try:
            said = self.python(_WAIT.replace("SECONDS", str(timeout)), timeout=timeout + 120)
        except CommandFailed as error:
            error.details = (*error.details, *self.logs())
            raise
        found: dict[str, Any] = json.loads(said)
        return found

    def logs(self) -> list[str]:
        """The last words of all its pods, and of its kubelet."""
        script = "tail -n 100 /var/log/pods/*/*/*.log; journalctl --no-pager --lines=60 --unit=kubelet"
        return self.guest.run(script, timeout=300).output.splitlines()

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def object(self) -> dict[str, Any]:
        """The node as the API server has it; {} before its kubelet has registered it."""
        answer = self.api.request("GET", self.path)
        return answer.body if answer.ok else {}

    def ready(self) -> bool:
        """Whether the API server calls the node Ready."""
        return _ready(self.object())

    def seen_ready(self, pod: str, namespace: str) -> bool:
        """Whether the API server has the static pod as Ready."""
        answer = self.api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}-{self.name}")
        return answer.ok and _ready(answer.body)

    def boot(self) -> str:
        """The kernel's id of this boot."""
        return self.guest.run("cat /proc/sys/kernel/random/boot_id").ok().strip()

    def ended(self) -> set[str]:
        """Names of all programs that have ended since this boot, at most 15 characters of each (acct(5))."""
        return set(self.python(_ENDED).splitlines())


def _mirror(registry: str) -> dict[str, Content]:
    """Tell containerd where a registry of this machine's loopback is, seen from the guest."""
    here = registry.replace("127.0.0.1", qemu.HERE)
    text = f'server = "http://{here}"\n\n[host."http://{here}"]\n  capabilities = ["pull", "resolve"]\n'
    return {f"/etc/containerd/certs.d/{registry}/hosts.toml": text}


def _ready(found: Mapping[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)
