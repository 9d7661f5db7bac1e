"""Install a release beside the one in force, then switch to it in one step.

Until then nothing on the node is different.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, StorageFailed, TemporaryFailure
from driverforge_host.ports import Files, Host, bytes_of
from driverforge_toolkit.runtime.formats.values import KeyPath, dotted
from driverforge_toolkit.toolkit import artifacts
from driverforge_toolkit.toolkit.config_toml import ToolkitConfig, laid_over, render_config
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.toolkit.wrapper import CONFIG

# config.toml as we wrote it, for the next time
WRITTEN = ".config/nvidia-container-runtime/.written-by-driverforge.toml"
LOCK = "/run/nvidia/toolkit/install.lock"
SPARE = 1 << 20  # bytes for folders and links


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRelease:
    """What is to be installed.

    From where, where to, and config.toml with the keys that the settings decide.
    """

    source: str
    layout: Layout
    default_runtime: str
    config: ToolkitConfig
    owned: Collection[KeyPath] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledRelease:
    """What came of it.

    `written` counts files and links; `aside` is where a folder that was not ours went ('': there was none).
    """

    release: str
    written: int
    switched: bool
    aside: str = ""
    kept: tuple[str, ...] = ()  # keys of config.toml that a person changed


@contextmanager
def exclusive_toolkit(host: Host) -> Iterator[None]:
    """Hold the lock of this node's toolkit.

    Raises TemporaryFailure while another instance installs or collects on this node.
    """
    host.node.make_dirs(LOCK.rpartition("/")[0])
    with host.node.lock(LOCK, text="driverctl toolkit\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another driverctl is working on this toolkit",
                resolution="wait for it to end, then run this again",
            )
        yield


def install_release(host: Host, wanted: WantedRelease) -> InstalledRelease:
    """Make the release that `wanted` describes the one in force; the same again writes nothing.

    Raises InputError (missing sources, a broken config.toml), StorageFailed, NotPermitted; what was in force
    stays so.
    """
    node, layout = host.node, wanted.layout
    libraries = artifacts.find_libraries(host.files, wanted.source)
    plan = artifacts.copy_plan(
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
    return InstalledRelease(
        release=release, written=written, switched=before != release, aside=aside, kept=settled.kept
    )


def installed_text(done: InstalledRelease) -> str:
    """What happened, for people."""
    if not done.written and not done.switched:
        return f"nothing to do: {done.release} is installed"
    lines = [
        f"installed {done.release}: {done.written} files written"
        + (", now in force" if done.switched else "")
    ]
    lines += [f"a toolkit that was not ours is kept in {done.aside}"] if done.aside else []
    return "\n".join([*lines, *(f"kept what somebody wrote into config.toml: {key}" for key in done.kept)])


def release_name(files: Files, plan: artifacts.CopyPlan, modes: dict[str, int]) -> str:
    """<version>-<hash over names, modes and contents>: equal for equal programs and wrappers."""
    digest = hashlib.sha256()
    for path, name in plan.copies:
        digest.update(
            f"{name}\0{modes[name]:o}\0{hashlib.sha256(files.read_bytes(path)).hexdigest()}\n".encode()
        )
    for name, text in (*plan.links, *plan.wrappers):
        digest.update(f"{name}\0{len(text)}\0{text}\n".encode())
    return "-".join(filter(None, (plan.version, digest.hexdigest()[:12])))


def _check_space(host: Host, plan: artifacts.CopyPlan, layout: Layout) -> None:
    needed = sum(host.files.size(path) or 0 for path, _ in plan.copies) + SPARE
    free = host.node.free_bytes(layout.install_dir)
    if free < needed:
        raise StorageFailed(
            f"{layout.install_dir} has too little space for another release of the toolkit",
            details=[f"{needed >> 20} MiB needed, {free >> 20} MiB free"],
            resolution="free some, e.g. with `driverctl toolkit gc`; what was installed before is still in "
            "force",
        )


def _fill(host: Host, plan: artifacts.CopyPlan, folder: str, modes: dict[str, int]) -> int:
    """Write what of the release is not there yet, or was damaged. Returns how many files that were."""
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


def _config(node: Files, wanted: WantedRelease, folder: str) -> _Config:
    """config.toml as it shall be, made of the file in force, whoever wrote that."""
    current, last = bytes_of(node, f"{folder}/{CONFIG}"), bytes_of(node, f"{folder}/{WRITTEN}")
    result = laid_over(current, last, wanted.config, wanted.owned, f"{folder}/{CONFIG}")
    return _Config(
        data=result.data, record=render_config(wanted.config), kept=tuple(map(dotted, result.kept))
    )


def _put_config(node: Files, folder: str, settled: _Config) -> int:
    place = f"{folder}/{CONFIG}".rpartition("/")[0]
    if not node.is_dir(place):
        node.make_dirs(place)
    mode = found.mode if (found := node.metadata(f"{folder}/{CONFIG}")) else 0o644
    # the file before our copy of it: after a kill between the two, it is taken for a person's, and nothing is
    # lost
    return _put(node, f"{folder}/{CONFIG}", settled.data, mode) + _put(
        node, f"{folder}/{WRITTEN}", settled.record, 0o644
    )


def _switch(node: Files, layout: Layout, release: str) -> str:
    """Let INSTALL_DIR/toolkit stand for `release`. Returns where a folder in its place went, '' for none.

    Such a folder, as NVIDIA's installer makes, goes among the releases: containers run from it.
    """
    target = f"releases/{release}"  # relative: right under whatever path the folder is mounted
    if node.is_link(layout.toolkit) or not node.exists(layout.toolkit):
        node.symlink(target, layout.toolkit)
        return ""
    places = (layout.release(f"before-{release}-{number}") for number in count(1))
    # a link there is left from a kill
    aside = next(place for place in places if node.is_link(place) or not node.exists(place))
    node.symlink(target, aside)
    node.exchange(aside, layout.toolkit)
    log.info("moved a toolkit that was not ours aside; containers that use it keep it", to=aside)
    return aside
