"""Distributions that write containerd's root file at each of their starts: what is changed instead, and what comes of it.

k3s and rke2 (2026-02 and later) and k0s import a folder, and a drop-in does. Older k3s and rke2, and microk8s, make the file of a
template, which gets a section. Facts: k3s-io/k3s pkg/agent/containerd, k0sproject/k0s pkg/component/worker/containerd,
canonical/microk8s microk8s-resources/default-args.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from driverforge_core.errors import Unsupported
from driverforge_node.host.ports import Files
from driverforge_node.runtime import containerd, template
from driverforge_node.runtime.backends import BACKENDS
from driverforge_node.runtime.document import Path, lookup, parse
from driverforge_node.runtime.imports import declared, matches
from driverforge_node.runtime.model import Activation, Backend, Daemon, Undone, Wanted

K0S_MARK = b"# k0s_managed=true"  # without it the file is the admin's, and k0s leaves it alone
# where k3s and rke2 look for a program that becomes the handler `nvidia` by itself, and no other of ours
FOUND = ("/usr/local/nvidia/toolkit/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime")

Contents = dict[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBackend:
    """A `Backend` whose only file is the template of the daemon's root file."""

    template: str
    version: int  # of the root file that comes of it
    own: tuple[str, ...] = ()  # handlers that the distribution adds by itself at its next start

    def paths(self, daemon: Daemon) -> tuple[str, ...]:
        return (self.template,)

    def patched(
        self,
        daemon: Daemon,
        files: Mapping[str, bytes | None],
        effective: Mapping[str, object],
        wanted: Wanted,
    ) -> dict[str, bytes | None]:
        present = {*containerd.handlers(effective), *self.own}
        return {
            self.template: template.patched(
                files[self.template], self.template, wanted, version=self.version, present=present
            )
        }

    def undone(
        self, path: str, *, original: bytes | None, written: bytes | None, current: bytes | None
    ) -> Undone:
        return template.undone(path, original=original, written=written, current=current)

    def stripped(
        self, daemon: Daemon, files: Mapping[str, bytes | None], names: tuple[str, ...]
    ) -> dict[str, bytes | None]:
        raise Unsupported(
            f"{daemon.config} is made of {self.template} and of programs that {daemon.supervisor.kind} finds",
            details=[f"handlers: {', '.join(names)}"],
            resolution="take them out of the template by hand, and remove NVIDIA's programs; nothing was changed",
        )

    def handlers(self, effective: Mapping[str, object]) -> dict[str, str]:
        return containerd.handlers(effective)

    def foreign(
        self, before: Mapping[str, object], after: Mapping[str, object], wanted: Wanted
    ) -> dict[Path, tuple[object, object]]:
        return containerd.foreign(before, after, wanted)

    def activation(self, before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
        return containerd.activation(before, after)

    def low_level_runtimes(self, config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
        return containerd.low_level_runtimes(config, own)

    def rendered(
        self, daemon: Daemon, root: bytes, source: bytes, effective: Mapping[str, object], wanted: Wanted
    ) -> bytes:
        """The root file as the distribution will write it: `root` is today's without our section, `source` the template to be."""
        present = containerd.handlers(effective)
        whole = template.BASE.encode() in source
        start = f"{template.BASE}\n".encode() if whole else root
        text = template.patched(start, daemon.config, wanted, version=self.version, present=present)
        runc = lookup(
            effective, (*containerd.cri(effective), *containerd.RUNTIMES, "runc", "options", "SystemdCgroup")
        )
        cgroup = b"true" if runc is True else b"false"
        text = text.replace(template.BASE.encode(), root) if whole else text
        return text.replace(template.K3S_CGROUP["SystemdCgroup"].encode(), cgroup)


def is_template(edit: Backend) -> TypeGuard[TemplateBackend]:
    return isinstance(edit, TemplateBackend)


def backend(daemon: Daemon, root: bytes | None, node: Files) -> Backend:
    """What changes this daemon's configuration; `root` is its root file as it is."""
    kind, folder = daemon.supervisor.kind, daemon.config.rpartition("/")[0]
    if daemon.kind != "containerd" or kind not in ("k3s", "rke2", "microk8s"):
        return BACKENDS[daemon.kind]
    document = parse(root or b"", daemon.config)
    version = 3 if document.get("version") in (3, 4) else 2
    if kind == "microk8s":
        return TemplateBackend(template=f"{folder}/containerd-template.toml", version=version)
    if any(matches(daemon.drop_in, daemon.config, name) for name in declared(document, daemon.config)):
        return BACKENDS[daemon.kind]
    own = ("nvidia",) if any(node.exists(program) for program in FOUND) else ()
    return TemplateBackend(
        template=f"{folder}/config{'-v3' if version == 3 else ''}.toml.tmpl", version=version, own=own
    )


def generated(daemon: Daemon, root: bytes | None) -> bool:
    """Whether the root file is not ours to write."""
    kind = daemon.supervisor.kind
    return kind in ("k3s", "rke2", "microk8s") or (kind == "k0s" and (root or K0S_MARK).startswith(K0S_MARK))


def without_us(edit: Backend, daemon: Daemon, base: Contents, handlers: tuple[str, ...]) -> Contents:
    """`base` as the daemon would read it at its next start: what was made of our files has `handlers` of ours still."""
    root = base.get(daemon.config)
    if root is None:
        return base
    if is_template(edit):
        return {
            **base,
            daemon.config: template.undone(daemon.config, original=root, written=None, current=root).data,
        }
    if daemon.supervisor.kind == "k0s" and generated(daemon, root) and handlers:
        made = {
            path: data for path, data in base.items() if path not in edit.paths(daemon)
        }  # what k0s merged our drop-in into
        return {**base, **edit.stripped(daemon, {**made, daemon.config: root}, handlers)}
    return base


def next_start(
    edit: Backend,
    daemon: Daemon,
    *,
    disk: Contents,
    clean: Contents,
    planned: Contents,
    view: Mapping[str, object],
    wanted: Wanted,
) -> tuple[Contents, Contents]:
    """(`planned`, `disk`) as the daemon reads them at its next start; `view` is its view of `clean`, which has nothing of ours."""
    if is_template(edit):
        source, root = planned[edit.template] or b"", clean[daemon.config] or b""
        return {**planned, daemon.config: edit.rendered(daemon, root, source, view, wanted)}, disk
    if generated(
        daemon, disk.get(daemon.config)
    ):  # k0s puts its drop-ins into what it writes: as if its root file imported them
        return planned, {**disk, daemon.config: planned[daemon.config]}
    return planned, disk
