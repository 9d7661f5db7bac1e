"""The low-level runtimes that NVIDIA's runtime hands containers to: never one of our own wrappers, which would call itself for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from driverforge_node.host.ports import Files
from driverforge_node.toolkit.wrapper import RUNTIMES

ALWAYS = ("runc", "crun")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowLevel:
    """`names` in the order in which they are tried, never empty; `refused` are our own programs under whatever name."""

    names: tuple[str, ...]
    refused: tuple[str, ...] = ()


def low_level(node: Files, install_dir: str, *, given: Sequence[str], discovered: Iterable[str]) -> LowLevel:
    """Low-level runtimes: the `given` ones, else those that the runtime's configuration names and runc, crun.

    Paths are compared as the node resolves them, and by device and inode: a link to a wrapper, or a copy's other name, is a wrapper.
    """
    wanted = list(dict.fromkeys(given or (*filter(None, discovered), *ALWAYS)))
    refused = [name for name in wanted if is_ours(node, install_dir, name)]
    names = [name for name in wanted if name not in refused]
    return LowLevel(names=tuple(names) or ALWAYS, refused=tuple(refused))


def is_ours(node: Files, install_dir: str, name: str) -> bool:
    """Whether `name` leads to a program of the toolkit; a bare name does where a wrapper's PATH would find it among ours."""
    if "/" not in name:
        return name in RUNTIMES or node.exists(f"{install_dir}/toolkit/{name}")
    resolved = node.resolve(name)
    roots = (install_dir.rstrip("/"), node.resolve(install_dir).rstrip("/"))
    if any(
        path.startswith((f"{root}/toolkit/", f"{root}/releases/"))
        for root in roots
        for path in (name, resolved)
    ):
        return True
    found = node.identity(name)
    return found is not None and any(
        node.identity(f"{install_dir}/toolkit/{program}") == found for program in RUNTIMES
    )
