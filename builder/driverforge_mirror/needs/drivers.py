"""Which driver images a cluster wants: who wishes for them, and their tags for its systems and kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId
from driverforge_core.tags import ImageTag, kernel_text
from driverforge_mirror.charts.values import Values, is_true, table_at, text_at
from driverforge_mirror.needs.nodes import Node
from driverforge_mirror.needs.slots import BY_PATH, Slot

KnownKernels = Callable[[OsId, str], Collection[str]]
"""The kernels that are known of an OS and architecture, as `uname -r` has them."""


def none_known(_os: OsId, _arch: str) -> Collection[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWish:
    """One source of driver pods: a chart's values, a ClusterPolicy, or an NVIDIADriver.

    `object_name` is '' for a chart's values, else the object that says it. `values` has `driver`,
    `driver.manager`, `gds` and `gdrcopy` as the chart has them. It is for the nodes that `selector` selects;
    one without is for those that no other's selects.
    """

    source: str
    object_name: str = ""
    values: Values
    precompiled: bool
    selector: Mapping[str, str]

    def selects(self, node: Node) -> bool:
        return all(node.labels.get(key) == value for key, value in self.selector.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes that take the same driver image.

    `kernel` is None where the node compiles; `next_boot`: nobody runs it yet.
    """

    os: OsId
    kernel: KernelRelease | None
    archs: frozenset[str]
    nodes: tuple[str, ...]
    next_boot: str = ""


def plain_wish(values: Values, object_name: str) -> DriverWish:
    """The wish of a chart's values, or of a ClusterPolicy."""
    return DriverWish(
        source=object_name or "the chart's values",
        object_name=object_name,
        values=values,
        precompiled=is_true(text_at(values, "driver.usePrecompiled")),
        selector={},
    )


def default_driver(values: Values) -> DriverWish:
    """The wish of the NVIDIADriver that the chart makes of its values."""
    selector = table_at(values, "driver.nvidiaDriverCRD.nodeSelector")
    return DriverWish(
        source="the chart's NVIDIADriver",
        values=values,
        precompiled=is_true(text_at(values, "driver.usePrecompiled")),
        selector={key: str(value) for key, value in selector.items()},
    )


def nvidia_driver(document: Values) -> DriverWish:
    """The wish of an NVIDIADriver (nvidia.com/v1alpha1)."""
    spec = table_at(document, "spec")
    name = f"NVIDIADriver {text_at(document, 'metadata.name')}"
    return DriverWish(
        source=name,
        object_name=name,
        values={
            "driver": {"enabled": "true", **spec},
            "gds": table_at(spec, "gds"),
            "gdrcopy": table_at(spec, "gdrcopy"),
        },
        precompiled=is_true(text_at(spec, "usePrecompiled")),
        selector={key: str(value) for key, value in table_at(spec, "nodeSelector").items()},
    )


def share(wishes: Sequence[DriverWish], nodes: Sequence[Node]) -> list[tuple[DriverWish, list[Node]]]:
    """The nodes of each wish. InputError where two want the same node, as upstream has it."""
    found: list[tuple[DriverWish, list[Node]]] = [(wish, []) for wish in wishes]
    rest = [place for place in found if not place[0].selector]
    if len(rest) > 1:
        raise InputError(
            f"{' and '.join(wish.source for wish, _ in rest)} are for all nodes, both without a nodeSelector",
            resolution="NVIDIA's operator takes one such driver: give the others a nodeSelector",
        )
    for node in nodes:
        chosen = [place for place in found if place[0].selector and place[0].selects(node)]
        if len(chosen) > 1:
            names = " and ".join(wish.source for wish, _ in chosen)
            raise InputError(
                f"node {node.name} is selected by {names}",
                resolution="NVIDIA's operator refuses this for the whole cluster: mend a nodeSelector",
            )
        for place in chosen or rest:
            place[1].append(node)
    return found


def pools(
    wish: DriverWish, nodes: Sequence[Node], kernels: Sequence[KernelRelease], known: KnownKernels
) -> list[Pool]:
    """The nodes of a wish, by what their driver image depends on; those of the next boot come last."""
    running: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        if node.os is not None:
            kernel = node.kernel.text if wish.precompiled else ""
            running.setdefault((node.os.tag, kernel), []).append(node)
    found = [_pool(group, precompiled=wish.precompiled) for _, group in sorted(running.items())]
    if not wish.precompiled:
        return found
    there = {(pool.os.tag, pool.kernel.text) for pool in found if pool.kernel}
    for pool in tuple(found):
        for release, why in _next_kernels(pool, kernels, known):
            if (pool.os.tag, release.text) not in there:
                there.add((pool.os.tag, release.text))
                found.append(replace(pool, kernel=release, next_boot=why))
    return found


def _pool(nodes: Sequence[Node], *, precompiled: bool) -> Pool:
    os = nodes[0].os
    assert os is not None
    return Pool(
        os=os,
        kernel=nodes[0].kernel if precompiled else None,
        archs=frozenset(node.arch for node in nodes),
        nodes=tuple(node.name for node in nodes),
    )


def next_unknown(pools: Sequence[Pool], named: Sequence[KernelRelease], known: KnownKernels) -> list[str]:
    """The nodes of whose kernels' line the user names none, and none is known."""
    return [
        node
        for pool in pools
        if pool.kernel and not pool.next_boot
        for node in pool.nodes
        if not any(_same_line(pool.kernel, one) for one in named)
        and not all(_known_line(pool, arch, known) for arch in pool.archs)
    ]


def _known_line(pool: Pool, arch: str, known: KnownKernels) -> list[KernelRelease]:
    """The kernels of a pool's line that are known for an architecture."""
    releases = [KernelRelease.parse(text) for text in known(pool.os, arch)]
    return [one for one in releases if pool.kernel and _same_line(pool.kernel, one)]


def _next_kernels(
    pool: Pool, named: Sequence[KernelRelease], known: KnownKernels
) -> Iterator[tuple[KernelRelease, str]]:
    """Newer kernels of the same line: those that the user names, and the newest that is known."""
    for kernel in named:
        if pool.kernel and _same_line(pool.kernel, kernel) and kernel.sort_key > pool.kernel.sort_key:
            yield kernel, "named with --kernel"
    for arch in sorted(pool.archs):
        newest = max(_known_line(pool, arch, known), key=lambda one: one.sort_key, default=None)
        if newest and pool.kernel and newest.sort_key > pool.kernel.sort_key:
            yield newest, "the newest of its line in the lock"


def _same_line(one: KernelRelease, other: KernelRelease) -> bool:
    """Whether a node of one kernel may boot the other after an update: same series, same flavour."""
    return (one.version[:2], one.flavour, one.variant, one.machine) == (
        other.version[:2],
        other.flavour,
        other.variant,
        other.machine,
    )


def driver_image(slot: Slot, wish: DriverWish, pool: Pool) -> str:
    """The image that the operator composes for a pool; '' where the slot names none.

    InputError for a digest where modules are precompiled: the operator refuses it.
    """
    base = slot.image(wish.values, "")
    if "@" in base:
        if pool.kernel is not None:
            raise InputError(
                f"{wish.source}: {slot.path}.version is a digest, and precompiled drivers go by tags",
                resolution=f"write the branch, e.g. {slot.path}.version: 580",
            )
        return base
    if not base:
        return ""
    kernel = f"-{kernel_text(pool.kernel)}" if pool.kernel else ""
    return f"{base}{kernel}-{pool.os.tag}"


def kernel_in_version(wish: DriverWish, os: OsId) -> KernelRelease | None:
    """The kernel that a version names itself: '550-5.15.0-131-generic', without usePrecompiled."""
    version = text_at(wish.values, "driver.version")
    try:
        return ImageTag.parse(f"{version}-{os.tag}").kernel
    except InputError:
        return None


def in_driver_pod(wish: DriverWish) -> list[Slot]:
    """The slots of the driver's pod that are in use."""
    paths = ("driver", "driver.manager", "gds", "gdrcopy")
    slots = [BY_PATH[path] for path in paths if not BY_PATH[path].closed(wish.values)]
    extra = [slot.path for slot in slots if slot.path in ("gds", "gdrcopy")]
    if wish.precompiled and extra:
        raise InputError(
            f"{wish.source}: precompiled drivers go without {' and '.join(extra)}",
            resolution="NVIDIA's operator refuses this: switch one of them off",
        )
    return slots
