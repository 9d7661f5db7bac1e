"""Distributions that write containerd's root file at each of their starts.

What is changed there instead, and what comes of it. k3s and rke2 (2026-02 and later) and k0s import a folder,
so that a drop-in does. Older k3s and rke2, and microk8s, make the root file of a template, which gets a
section.

Facts: k3s-io/k3s pkg/agent/containerd, k0sproject/k0s pkg/component/worker/containerd, canonical/microk8s
microk8s-resources/default-args.
"""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core.errors import Unsupported
from driverforge_host.ports import Files, bytes_of
from driverforge_toolkit.runtime.backends import containerd, crio, docker, template, template_cure
from driverforge_toolkit.runtime.backends.imports import brings_in, declared_imports, glob_base
from driverforge_toolkit.runtime.backends.template import TemplateBackend, is_template
from driverforge_toolkit.runtime.backends.template_render import base_of
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, data_of
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import text_of
from driverforge_toolkit.runtime.model import Backend, RuntimeDaemon, RuntimeKind, WantedHandlers

K0S_MARK = b"# k0s_managed=true"  # without it the file is the admin's, and k0s leaves it alone
# where k3s and rke2 look for a program that becomes the handler `nvidia` by itself, and no other of ours
FOUND_BY_K3S = ("/usr/local/nvidia/toolkit/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime")
BACKENDS: dict[RuntimeKind, Backend] = {"containerd": containerd, "crio": crio, "docker": docker}


def backend_of(daemon: RuntimeDaemon, root: ConfigFile, node: Files) -> Backend:
    """The backend that edits this daemon's files. `root` is its root file as it is."""
    kind, folder = daemon.supervisor.kind, daemon.config.rpartition("/")[0]
    if daemon.kind != "containerd" or kind not in ("k3s", "rke2", "microk8s"):
        return BACKENDS[daemon.kind]
    version = 3 if root.values.get("version") in (3, 4) else 2
    if kind == "microk8s":
        return TemplateBackend(template=f"{folder}/containerd-template.toml", version=version)
    if any(
        brings_in(item, daemon.drop_in, daemon.config, glob_base(daemon))
        for item in declared_imports(root.values, daemon.config)
    ):
        return BACKENDS[daemon.kind]
    own = ("nvidia",) if any(node.exists(program) for program in FOUND_BY_K3S) else ()
    return TemplateBackend(
        template=f"{folder}/config{'-v3' if version == 3 else ''}.toml.tmpl", version=version, own=own
    )


def next_root(
    edit: Backend, daemon: RuntimeDaemon, *, disk: Contents, planned: Contents, node: Files
) -> bytes | None:
    """The root file as k3s or rke2 will make it of `planned` at its next start; `disk` is what is there.

    None where that is not known: no template makes it, or one that only the distribution can execute. Raises
    InputError, with the template's line, where containerd could not read that file, Unsupported where it
    would lack the distribution's own configuration or our drop-in.
    """
    root = disk[daemon.config].data
    path = _template_of(edit, daemon, disk[daemon.config], node)
    if root is None or not path:
        return None
    # without a section of ours in it, the template is none of the files of a change
    theirs = bytes_of(node, path) if path not in disk else None
    text, today = (data_of(files, path) if path in files else theirs for files in (planned, disk))
    now = text_of(root, daemon.config)
    base = base_of(now, None if today is None else text_of(today, path)) or ""
    if text is None:
        return base.encode() or None
    then = template_cure.check_next_start(daemon, path, text_of(text, path), root=now, base=base)
    if then is not None and not is_template(edit) and data_of(planned, daemon.drop_in) is not None:
        _check_import(daemon, path, then)
    return None if then is None else then.encode()


def _template_of(edit: Backend, daemon: RuntimeDaemon, root: ConfigFile, node: Files) -> str:
    """The template that k3s or rke2 takes at its next start, '' where there is none.

    With containerd 2 that of version 3 is looked for first (k3s-io/k3s pkg/agent/containerd).
    """
    if daemon.supervisor.kind not in ("k3s", "rke2"):
        return ""
    if is_template(edit):
        return edit.template
    folder, newer = daemon.config.rpartition("/")[0], root.values.get("version") in (3, 4)
    names = ("config-v3.toml.tmpl", "config.toml.tmpl")[not newer :]
    return next((f"{folder}/{name}" for name in names if node.exists(f"{folder}/{name}")), "")


def _check_import(daemon: RuntimeDaemon, template: str, root: str) -> None:
    """Raises Unsupported if a root file that is to come does not import our drop-in."""
    imports = declared_imports(parse(root.encode(), daemon.config), daemon.config)
    if not any(brings_in(item, daemon.drop_in, daemon.config, glob_base(daemon)) for item in imports):
        raise Unsupported(
            f"refused: what {daemon.supervisor.kind} makes of {template} at its next start does not import "
            f"{daemon.drop_in}",
            details=[f"its imports are: {', '.join(imports) or 'none'}"],
            resolution=f"add {daemon.drop_in} to its `imports`, or have it begin with {template_cure.BASE}; "
            "nothing was changed",
        )


def is_generated(daemon: RuntimeDaemon, root: bytes | None) -> bool:
    """Whether the distribution writes the root file, so that it is not ours to write."""
    kind = daemon.supervisor.kind
    return kind in ("k3s", "rke2", "microk8s") or (kind == "k0s" and (root or K0S_MARK).startswith(K0S_MARK))


def without_handlers(
    edit: Backend, daemon: RuntimeDaemon, base: Contents, handlers: tuple[str, ...]
) -> Contents:
    """`base` as the daemon would read it at its next start, had we never written anything.

    `base` has our own files without our changes. But what the distribution made of these earlier, its root
    file, has `handlers` of ours still: they are taken out here.
    """
    root = base[daemon.config]
    if root.data is None:
        return base
    if is_template(edit):
        source = base[edit.template].data
        data = template.root_without_ours(root.data, source, daemon.config)
        return {**base, daemon.config: root.with_data(data)}
    if daemon.supervisor.kind == "k0s" and is_generated(daemon, root.data) and handlers:
        # what k0s merged our drop-in into
        made = {path: file for path, file in base.items() if path not in edit.paths(daemon)}
        return {**base, **edit.stripped(daemon, {**made, daemon.config: root}, handlers)}
    return base


def at_next_start(
    edit: Backend,
    daemon: RuntimeDaemon,
    *,
    disk: Contents,
    clean: Contents,
    planned: Contents,
    view: Mapping[str, object],
    wanted: WantedHandlers,
) -> tuple[Contents, Contents]:
    """`planned` and `disk` as the daemon reads them at its next start.

    `clean` has nothing of ours, and `view` is the daemon's view of it.
    """
    if is_template(edit):
        source, root = planned[edit.template].data or b"", clean[daemon.config]
        data = edit.rendered(daemon, root.data or b"", source, view, wanted)
        return {**planned, daemon.config: root.with_data(data)}, disk
    # k0s puts its drop-ins into what it writes: as if its root file imported them
    if is_generated(daemon, disk[daemon.config].data):
        return planned, {**disk, daemon.config: planned[daemon.config]}
    return planned, disk
