"""Names of files: of one mount namespace in another."""

from __future__ import annotations

import pytest

from driverforge_host.ports.mounts import parse_mountinfo, translated, under

# a node with /var on a disk of its own; and NVIDIA's toolkit pod on it, with its mounts
NODE = parse_mountinfo(
    """21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 8:2 / /var rw shared:2 - ext4 /dev/sda2 rw
31 21 0:24 / /run rw shared:3 - tmpfs tmpfs rw
32 31 0:60 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs rw shared:4 - overlay overlay rw
33 21 8:1 /etc/containerd/deep /mnt/again rw - ext4 /dev/sda1 rw
34 21 0:99 / /hidden rw - tmpfs tmpfs rw
35 34 0:98 / /hidden rw - tmpfs tmpfs rw
"""
)
POD = parse_mountinfo(
    """100 1 0:60 / / rw - overlay overlay rw
101 100 8:1 / /host ro - ext4 /dev/sda1 rw
102 100 8:1 /etc/containerd /runtime/config-dir rw - ext4 /dev/sda1 rw
103 100 8:1 /etc/containerd/conf.d /runtime/config-dir.d rw - ext4 /dev/sda1 rw
104 100 0:24 /containerd /runtime/sock-dir rw - tmpfs tmpfs rw
105 100 8:2 /lib/my\\040place /data rw - ext4 /dev/sda2 rw
106 100 0:77 / /only-here rw - tmpfs tmpfs rw
107 100 0:99 / /covered rw - tmpfs tmpfs rw
"""
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/runtime/config-dir/config.toml", "/etc/containerd/config.toml"),
        ("/runtime/config-dir.d/99-nvidia.toml", "/etc/containerd/conf.d/99-nvidia.toml"),
        ("/runtime/sock-dir/containerd.sock", "/run/containerd/containerd.sock"),
        ("/runtime/sock-dir", "/run/containerd"),
        ("/host/etc/containerd/config.toml", "/etc/containerd/config.toml"),
        ("/data/x", "/var/lib/my place/x"),
        ("/only-here/x", None),
        ("/covered/x", None),  # the node has this file system, under another mount
        ("/etc/hosts", "/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs/etc/hosts"),
    ],
)
def test_a_path_of_a_pod_as_the_node_calls_it(path: str, name: str | None) -> None:
    assert translated(path, POD, NODE) == name


def test_a_file_that_is_mounted_by_itself_has_the_name_that_both_have() -> None:
    """Its other name is another way to it: what is renamed over that, is not seen where it is mounted."""
    mounts = parse_mountinfo(
        """21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
36 21 8:1 /k.toml /etc/containerd/config.toml rw - ext4 /dev/sda1 rw
"""
    )
    assert translated("/etc/containerd/config.toml", mounts, mounts) == "/etc/containerd/config.toml"
    assert translated("/etc/containerd/config.toml", mounts, mounts[:1]) == "/k.toml"


def test_a_name_that_only_begins_alike_is_not_below() -> None:
    assert under("/etc/containerd2/x", "/etc/containerd") is None
    assert under("/etc/containerd", "/etc/containerd") == ""
    assert under("/x", "/") == "/x"
