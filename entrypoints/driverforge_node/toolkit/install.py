"""Install a release beside the one in force, then switch to it with one step: until then nothing on the node is different."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count

from driverforge_core.errors import DriverforgeError, StorageFailed, TemporaryFailure
from driverforge_node import log
from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime.document import Path, dotted
from driverforge_node.toolkit import source
from driverforge_node.toolkit.config import ToolkitConfig, render
from driverforge_node.toolkit.layout import Layout
from driverforge_node.toolkit.merge import merged
from driverforge_node.toolkit.wrapper import CONFIG

WRITTEN = ".config/nvidia-container-runtime/.written-by-driverforge.toml"  # config.toml as we wrote it, for the next time
LOCK = "/run/nvidia/toolkit/install.lock"
SPARE = 1 << 20  # bytes for folders and links


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be installed: from where, where to, and config.toml with the keys that the settings decide."""

    source: str
    layout: Layout
    default_runtime: str
    config: ToolkitConfig
    owned: Collection[Path] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What came of it. `written` counts files and links; `aside` is where a folder that was not ours went ('': there was none)."""

    release: str
    written: int
    switched: bool
    aside: str = ""
    kept: tuple[str, ...] = ()  # keys of config.toml that a person changed


@contextmanager
def exclusive(host: Host) -> Iterator[None]:
    """Raises TemporaryFailure while another instance installs or collects on this node."""
    host.node.make_dirs(LOCK.rpartition("/")[0])
    with host.node.lock(LOCK, text="driverctl toolkit\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another driverctl works on this toolkit now",
                resolution="wait for it to end, then run this again",
            )
        yield


def install(host: Host, wanted: Wanted) -> Installed:
    """Make the release that `wanted` describes the one in force; the same again writes nothing.

    Raises InputError (missing sources, a broken config.toml), StorageFailed, NotPermitted; what was in force stays so.
    """
    node, layout = host.node, wanted.layout
    libraries = source.find(host.files, wanted.source)
    plan = source.plan(
        wanted.source, libraries, folder=layout.toolkit, default_runtime=wanted.default_runtime
    )
    files = {name: host.files.metadata(path) for path, name in plan.copies}
    modes = {name: 0o755 if found is None else found.mode & 0o777 for name, found in files.items()}
    release = release_name(host.files, plan, modes)
    folder = layout.release(release)
    before = layout.current(node)
    settled = _config(node, wanted, layout.toolkit if node.exists(layout.toolkit) else folder)
    new = not node.exists(folder)
    try:
        if new:
            _check_space(host, plan, layout)
        written = _fill(host, plan, folder, modes) + _put_config(node, folder, settled)
    except DriverforgeError:
        if new:
            with suppress(DriverforgeError):
                node.remove_tree(folder)
        raise
    aside = _switch(node, layout, release) if before != release else ""
    return Installed(
        release=release, written=written, switched=before != release, aside=aside, kept=settled.kept
    )


def summary(done: Installed) -> str:
    """What happened, for people."""
    if not done.written and not done.switched:
        return f"nothing to do: {done.release} is installed"
    lines = [
        f"installed {done.release}: {done.written} files written"
        + (", now in force" if done.switched else "")
    ]
    lines += [f"a toolkit that was not ours is kept in {done.aside}"] if done.aside else []
    return "\n".join([*lines, *(f"kept what somebody wrote into config.toml: {key}" for key in done.kept)])


def release_name(files: Files, plan: source.Plan, modes: dict[str, int]) -> str:
    """<version>-<hash over names, modes and contents>: equal for equal programs and wrappers."""
    digest = hashlib.sha256()
    for path, name in plan.copies:
        digest.update(
            f"{name}\0{modes[name]:o}\0{hashlib.sha256(files.read_bytes(path)).hexdigest()}\n".encode()
        )
    for name, text in (*plan.links, *plan.wrappers):
        digest.update(f"{name}\0{len(text)}\0{text}\n".encode())
    return "-".join(filter(None, (plan.version, digest.hexdigest()[:12])))


def _check_space(host: Host, plan: source.Plan, layout: Layout) -> None:
    needed = sum(host.files.size(path) or 0 for path, _ in plan.copies) + SPARE
    free = host.node.free_bytes(layout.install_dir)
    if free < needed:
        raise StorageFailed(
            f"{layout.install_dir} has too little space for another release of the toolkit",
            details=[f"{needed >> 20} MiB needed, {free >> 20} MiB free"],
            resolution="free some, e.g. with `driverctl toolkit gc`; what was installed before is still in force",
        )


def _fill(host: Host, plan: source.Plan, folder: str, modes: dict[str, int]) -> int:
    """Write what of the release is not there yet, or was damaged; how many files that were."""
    node = host.node
    if not node.is_dir(folder):
        node.make_dirs(folder)
    written = 0
    for path, name in plan.copies:
        written += _put(node, f"{folder}/{name}", host.files.read_bytes(path), modes[name])
    for name, text in plan.wrappers:
        written += _put(node, f"{folder}/{name}", text.encode(), modes[f"{name}.real"] | 0o111)
    for name, target in plan.links:
        if not (
            node.is_link(f"{folder}/{name}")
            and node.resolve(f"{folder}/{name}") == node.resolve(f"{folder}/{target}")
        ):
            node.symlink(target, f"{folder}/{name}")
            written += 1
    return written


def _put(node: Files, path: str, data: bytes, mode: int) -> int:
    found = node.metadata(path)
    if found and found.mode == mode and node.size(path) == len(data) and node.read_bytes(path) == data:
        return 0
    node.write_atomic(path, data, mode=mode)
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Config:
    """config.toml to write, our own copy of it, and the keys that stay a person's."""

    data: bytes
    record: bytes
    kept: tuple[str, ...]


def _config(node: Files, wanted: Wanted, folder: str) -> _Config:
    """From the file in force, whoever wrote it."""
    current, last = _read(node, f"{folder}/{CONFIG}"), _read(node, f"{folder}/{WRITTEN}")
    result = merged(current, last, wanted.config, wanted.owned, f"{folder}/{CONFIG}")
    return _Config(data=result.data, record=render(wanted.config), kept=tuple(map(dotted, result.kept)))


def _put_config(node: Files, folder: str, settled: _Config) -> int:
    place = f"{folder}/{CONFIG}".rpartition("/")[0]
    if not node.is_dir(place):
        node.make_dirs(place)
    mode = found.mode if (found := node.metadata(f"{folder}/{CONFIG}")) else 0o644
    # the file before our copy of it: after a kill between the two, it is taken for a person's, and nothing is lost
    return _put(node, f"{folder}/{CONFIG}", settled.data, mode) + _put(
        node, f"{folder}/{WRITTEN}", settled.record, 0o644
    )


def _read(node: Files, path: str) -> bytes | None:
    try:
        return node.read_bytes(path)
    except FileNotFoundError:
        return None


def _switch(node: Files, layout: Layout, release: str) -> str:
    """Let INSTALL_DIR/toolkit stand for `release`; a folder in its place, as NVIDIA's installer makes, goes among the releases."""
    target = f"releases/{release}"  # relative: right under whatever path the folder is mounted
    if node.is_link(layout.toolkit) or not node.exists(layout.toolkit):
        node.symlink(target, layout.toolkit)
        return ""
    places = (layout.release(f"before-{release}-{number}") for number in count(1))
    aside = next(
        place for place in places if node.is_link(place) or not node.exists(place)
    )  # a link there is left from a kill
    node.symlink(target, aside)
    node.exchange(aside, layout.toolkit)
    log.info("moved a toolkit that was not ours aside; containers that use it keep it", to=aside)
    return aside
