"""How many compilers to run at once.

As many as there are processors that this process may use, but no more than its cgroup pays for: nproc knows
nothing of a container's `resources.limits.cpu`, and a node of 128 processors would start 128 compilers in a
container of two.
"""

from __future__ import annotations

from collections.abc import Iterator

from driverforge_core.errors import Unavailable
from driverforge_host.ports import Files, Host, text_of
from driverforge_host.ports.mounts import under


def processors(host: Host) -> int:
    """At least one. Raises Unavailable without nproc."""
    result = host.commands.run(["nproc"], check=False)
    if not result.ok:
        raise Unavailable("nproc failed", details=[result.stderr.strip()], resolution="give -j")
    limits = (processor_limit(host.files, folder) for folder in cgroup_folders(host))
    return min([int(result.stdout), *(limit for limit in limits if limit is not None)])


def cgroup_folders(host: Host) -> Iterator[str]:
    """Our own cgroups and all above them, as far as we see them. The limits of each one count."""
    own = {}
    for line in text_of(host.files, "/proc/self/cgroup").splitlines():
        # cgroups(7): 'ID:CONTROLLERS:PATH', without controllers in version 2
        _, controllers, path = line.split(":", 2)
        if not controllers:
            own["cgroup2"] = path
        elif "cpu" in controllers.split(","):
            own["cgroup"] = path
    for mount in host.mounts.table():
        if mount.fs_type in own:
            # Nothing of our path is below a mount that shows our own cgroup as its root.
            rest = under(own[mount.fs_type], mount.root) or ""
            while rest.strip("/"):
                yield mount.target + rest
                rest = rest.rpartition("/")[0]
            yield mount.target


def processor_limit(files: Files, folder: str) -> int | None:
    """How many processors a cgroup's quota is worth, rounded up; None where it has none.

    cpu.max of version 2 is 'QUOTA PERIOD' with 'max' for no limit
    (Documentation/admin-guide/cgroup-v2.rst), and version 1 has two files with -1 for none
    (Documentation/scheduler/sched-bwc.rst), in microseconds.
    """
    quota, _, period = text_of(files, f"{folder}/cpu.max").strip().partition(" ")
    if not quota:
        quota = text_of(files, f"{folder}/cpu.cfs_quota_us").strip()
        period = text_of(files, f"{folder}/cpu.cfs_period_us").strip()
    if not quota.isdecimal() or not period.isdecimal():
        return None
    return max(1, -(-int(quota) // int(period)))
