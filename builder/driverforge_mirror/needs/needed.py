"""Every image that a cluster's settings and nodes ask for, and why; what is left out, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driverforge_core.errors import InputError, Unsupported
from driverforge_core.kernel import KernelRelease
from driverforge_mirror.charts.chart import NFD, OURS, Chart
from driverforge_mirror.charts.values import Values, at, is_true, leaves, merged, table_at, tables, text_at
from driverforge_mirror.needs.drivers import (
    DriverWish,
    KnownKernels,
    Pool,
    default_driver,
    driver_image,
    in_driver_pod,
    kernel_in_version,
    next_unknown,
    none_known,
    nvidia_driver,
    plain_wish,
    pools,
    share,
)
from driverforge_mirror.needs.nodes import Node, gpu_nodes
from driverforge_mirror.needs.slots import BY_PATH, IMAGE_KEYS, SLOTS, Slot
from driverforge_oci.reference import Reference

CLUSTER_POLICY = "ClusterPolicy"

# where the values are a ClusterPolicy's, these are still the chart's
_CHART_ALONE = ("operator", OURS, "nfd", NFD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why an image is needed. `slot` is its place in the values; `nodes`: those that need it.

    `object_name` is the object of the cluster that names it, '' for a chart's values; `said` is what stands
    there of it.
    """

    slot: str
    text: str
    object_name: str = ""
    said: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    archs: frozenset[str] = frozenset()
    pool: Pool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """An image that the chart names and this cluster does not use."""

    image: str
    slot: str
    text: str


@dataclass(slots=True)
class Needs:
    """`images` maps each image, as pods ask for it, to its reasons; `archs` are those of the GPU nodes.

    `compiling` are nodes that compile their driver, with whoever wants it there.
    """

    images: dict[str, list[Reason]] = field(default_factory=dict)
    archs: frozenset[str] = frozenset()
    compiling: list[tuple[DriverWish, Sequence[Node]]] = field(default_factory=list)
    left_out: list[Unneeded] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """All that is known of a cluster. `policy` is the `spec` of a ClusterPolicy, in the values' place.

    `kernels` are those that the user names for the next boot, beside the `known` ones.
    """

    chart: Chart | None
    values: Sequence[Values] = ()
    policy: Values | None = None
    drivers: Sequence[Values] = ()
    nodes: Sequence[Node] = ()
    kernels: Sequence[KernelRelease] = ()
    known: KnownKernels = none_known


def needs_of(settings: ClusterSettings) -> Needs:
    """Every image. InputError where a slot in use names none, or the chart has one that is not known here."""
    needs = Needs()
    values = _effective(settings, needs)
    if is_true(text_at(values, "gpuCluster.deployCR")):
        raise Unsupported(
            "gpuCluster.deployCR is true, and what a GPUCluster (DRA) needs is not known yet",
            resolution="switch it off, or mirror this cluster by hand",
        )
    nodes, warning = gpu_nodes(settings.nodes)
    needs.warnings += [warning] if warning and nodes else []
    needs.archs = frozenset(node.arch for node in nodes)
    if any(node.os and node.os.id == "rhcos" for node in nodes):
        values = merged(values, {"platform": {"openshift": "true"}})
        needs.warnings.append("OpenShift: the driver toolkit image is in the cluster's release, not here")
    wishes = _wishes(settings, values)
    for slot in slots_of(settings):
        composed = slot.per_system or (slot.path == "driver.manager" and wishes)
        if slot.closed(values) or not composed:
            _take(needs, slot, values, settings)
    _take_drivers(needs, wishes, values, nodes, settings)
    if not BY_PATH["kataManager"].closed(values):
        _take_kata(needs, values)
    needs.left_out = [one for one in needs.left_out if one.image not in needs.images]
    return needs


def slots_of(settings: ClusterSettings) -> Iterator[Slot]:
    """The places for images that there are: those of the chart's version, or all of a ClusterPolicy's."""
    chart = settings.chart
    whole_policy = settings.policy is not None or (chart is not None and chart.ours)
    for slot in SLOTS:
        in_policy = whole_policy and slot.path.partition(".")[0] not in _CHART_ALONE
        if in_policy or (chart is not None and _has_slot(chart, slot.path)):
            yield slot


def _has_slot(chart: Chart, path: str) -> bool:
    """Whether a chart's own values have an image there. Ours has its operator's, which its user names."""
    named = text_at(chart.values, f"{path}.image") or text_at(chart.values, f"{path}.repository")
    return bool(named) or (chart.ours and path == OURS)


def _effective(settings: ClusterSettings, needs: Needs) -> Values:
    chart = settings.chart
    above: Values = {}
    if chart is not None:
        _check_known(chart)
        for given in settings.values:
            needs.warnings += _without_effect(chart, given)
        above = chart.effective(*settings.values)
    if settings.policy is None:
        return above
    if chart is None:
        needs.warnings.append(
            "the operator's own image and Node Feature Discovery's are not in a ClusterPolicy: "
            "add --chart for them"
        )
    return merged(settings.policy, {key: above[key] for key in _CHART_ALONE if key in above})


def _check_known(chart: Chart) -> None:
    """InputError for what looks like an image and is in no slot: a chart that this program does not know."""
    unknown = []
    for path, table in tables(chart.values):
        named = [key for key in ("repository", "image") if isinstance(table.get(key), str) and table[key]]
        if named and path not in BY_PATH:
            unknown.append(f"{path}: {', '.join(f'{key}: {table[key]}' for key in named)}")
    if unknown:
        raise InputError(
            f"chart {chart.name} {chart.version} has images that this program does not know the use of",
            details=unknown,
            resolution="use a newer driverforge, or a chart version that it knows: a list without them would "
            "be too short",
        )


def _without_effect(chart: Chart, given: Values) -> Iterator[str]:
    """Keys of a user's values that name or switch images where the chart has none.

    A global registry is one, a misspelt component another.
    """
    own = dict(chart.own(given))
    slots = {slot.path for slot in slots_of(ClusterSettings(chart=chart))}
    for key, value in own.items():
        if (
            key not in chart.values
            and isinstance(value, dict)
            and any(name in chart.values for name in value)
        ):
            yield f"{key} has no effect: chart {chart.version} has no such value, but has what is below it"
            return
    own["global"] = given.get("global", {})
    for path in leaves(own):
        parent, _, key = path.rpartition(".")
        switch = key == "enabled" and "." not in parent and parent not in {*chart.values, *slots}
        image = key in IMAGE_KEYS and parent.partition(".")[0] != NFD and parent not in slots
        if switch or (image and at(chart.values, path) is None) or key.endswith("Registry"):
            yield f"{path} has no effect: chart {chart.version} has no such value"


def _wishes(settings: ClusterSettings, values: Values) -> list[DriverWish]:
    """Who wants drivers; none where the driver is switched off."""
    if BY_PATH["driver"].closed(values):
        return []
    delegated = is_true(text_at(values, "driver.useNvidiaDriverCRD")) or is_true(
        text_at(values, "driver.nvidiaDriverCRD.enabled")
    )
    named = [nvidia_driver(one) for one in settings.drivers]
    if not delegated and not (named and settings.policy is None and settings.chart is None):
        return [plain_wish(values, CLUSTER_POLICY if settings.policy is not None else "")]
    default = text_at(values, "driver.nvidiaDriverCRD.deployDefaultCR") or "true"
    if settings.policy is None and settings.chart is not None and is_true(default):
        named.append(default_driver(values))
    if not named:
        raise InputError(
            "the driver is left to NVIDIADriver objects, and none is given",
            resolution="kubectl get nvidiadrivers -o yaml > drivers.yaml, then --policy drivers.yaml",
        )
    return named


def _take(needs: Needs, slot: Slot, values: Values, settings: ClusterSettings) -> None:
    """A slot whose image depends on no node: needed, or left out."""
    image = slot.image(values, settings.chart.operand_version if settings.chart else "")
    told = ", ".join(one.told(values) for one in slot.closed(values))
    if told:
        # 'vgpu-manager' alone is a name that nobody could pull
        if ":" in image or "@" in image:
            needs.left_out.append(Unneeded(image=image, slot=slot.path, text=f"{slot.purpose}: {told}"))
        return
    of_chart = settings.policy is None or slot.path.partition(".")[0] in _CHART_ALONE
    if not image:
        raise _no_image(slot, "the values" if of_chart else CLUSTER_POLICY)
    told = ", ".join(one.told(values) for one in slot.when)
    reason = Reason(
        slot=slot.path,
        text=slot.purpose + (f": {told}" if told else ", always"),
        object_name="" if of_chart else CLUSTER_POLICY,
        said=slot.said(values),
    )
    _add(needs, image, reason)


def _no_image(slot: Slot, source: str) -> InputError:
    brief = f"{source}: {slot.path} is in use and names no image"
    if not slot.tag:
        return InputError(
            brief,
            details=[slot.purpose],
            resolution=f"set {slot.path}.image: registry.site/nvidia/driverforge-operator:v0.1.0",
        )
    return InputError(
        brief,
        details=[f"{slot.purpose}; NVIDIA's operator would take what its own environment says, or fail"],
        resolution=f"set {slot.path}.repository, .image and .{slot.tag}, or switch it off",
    )


def _add(needs: Needs, image: str, reason: Reason) -> None:
    reference = Reference.parse(image)
    if not (reference.tag or reference.digest):
        raise InputError(f"{reason.slot}: {image} has neither tag nor digest", resolution="add its version")
    needs.images.setdefault(image, []).append(reason)


def _take_kata(needs: Needs, values: Values) -> None:
    classes = at(values, "kataManager.config.runtimeClasses")
    for one in classes if isinstance(classes, list) else ():
        if isinstance(one, dict) and (url := text_at(one, "artifacts.url")):
            _add(needs, url, Reason(slot="kataManager.config.runtimeClasses", text="Kata's guest files"))


def _take_drivers(
    needs: Needs,
    wishes: Sequence[DriverWish],
    values: Values,
    nodes: Sequence[Node],
    settings: ClusterSettings,
) -> None:
    vgpu = not BY_PATH["vgpuManager"].closed(values)
    if not wishes and not vgpu:
        return
    if not nodes:
        raise InputError(
            "the driver's tags depend on the nodes, and no nodes are given",
            resolution="add them: kubectl get nodes -o json > nodes.json, then --nodes nodes.json",
        )
    running = _with_driver(needs, nodes)
    systems = {node.os.tag for node in running if node.os}
    ours = settings.chart is not None and settings.chart.ours
    if len(systems) > 1 and not ours and not any(wish.selector for wish in wishes):
        needs.warnings.append(
            "GPU nodes run several systems: with a ClusterPolicy NVIDIA's operator takes one node's for all; "
            "use NVIDIADriver objects (all are listed here)"
        )
    for wish, mine in share(wishes, running):
        _take_wish(needs, wish, in_driver_pod(wish), mine, settings)
        needs.compiling += [] if wish.precompiled else [(wish, mine)]
    if vgpu:
        named = CLUSTER_POLICY if settings.policy is not None else ""
        host = DriverWish(
            source="vgpuManager", object_name=named, values=values, precompiled=False, selector={}
        )
        _take_wish(needs, host, [BY_PATH["vgpuManager"]], running, settings)


def _with_driver(needs: Needs, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that run the operator's driver; the others are told."""
    for node in nodes:
        if node.without_driver:
            needs.warnings.append(f"node {node.name} has no driver of the operator's: {node.without_driver}")
    unknown = [node for node in nodes if not node.without_driver and node.os is None]
    if unknown:
        raise InputError(
            "the system of GPU nodes is not known, and a driver's tag ends with it",
            details=[f"{node.name}: {node.os_text or 'no label, no osImage'}" for node in unknown],
            resolution="Node Feature Discovery labels it: feature.node.kubernetes.io/system-os_release.ID "
            "and .VERSION_ID; take the dump when it runs, or add both labels to the file",
        )
    return [node for node in nodes if not node.without_driver]


def _take_wish(
    needs: Needs, wish: DriverWish, slots: Sequence[Slot], nodes: Sequence[Node], settings: ClusterSettings
) -> None:
    groups = pools(wish, nodes, settings.kernels, settings.known)
    for slot in slots:
        if not slot.per_system:
            image = slot.image(wish.values, "")
            if not image:
                raise _no_image(slot, wish.source)
            reason = Reason(
                slot=slot.path,
                text=f"{slot.purpose}: {wish.source}",
                object_name=wish.object_name,
                said=slot.said(wish.values),
            )
            _add(needs, image, reason)
            continue
        for pool in groups:
            image = driver_image(slot, wish, pool)
            if not image:
                raise _no_image(slot, wish.source)
            _add(needs, image, _driver_reason(slot, wish, pool))
    if unknown := next_unknown(groups, settings.kernels, settings.known):
        needs.warnings.append(
            f"{wish.source}: the next kernel of {_names(unknown)} is not known; --kernel or --lock says it"
        )
    for pool in groups:
        named = kernel_in_version(wish, pool.os)
        others = [node.name for node in nodes if named and node.kernel.text != named.text]
        if named and others:
            needs.warnings.append(
                f"{wish.source}: driver.version names the kernel {named}, and {_names(others)} run others: "
                f"their driver does not load; usePrecompiled with the branch alone follows kernels"
            )


def _driver_reason(slot: Slot, wish: DriverWish, pool: Pool) -> Reason:
    where = f"{len(pool.nodes)} node{'s' if len(pool.nodes) > 1 else ''} with {pool.os.tag}"
    if pool.next_boot:
        text = f"for the next boot of {where}: {pool.kernel} is {pool.next_boot}"
    else:
        text = f"{where}" + (f" and kernel {pool.kernel}" if pool.kernel else "")
    return Reason(
        slot=slot.path,
        text=f"{slot.purpose}: {text} ({wish.source})",
        object_name=wish.object_name,
        said=slot.said(wish.values),
        nodes=() if pool.next_boot else pool.nodes,
        archs=pool.archs,
        pool=pool,
    )


def _names(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:3])
    return shown + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")


def policies(documents: Sequence[Any]) -> tuple[Values | None, list[Values]]:
    """The `spec` of the ClusterPolicy among documents, and the NVIDIADrivers; Lists are taken apart."""
    found = [item for one in documents for item in _items(one)]
    specs = [table_at(one, "spec") for one in found if one.get("kind") == "ClusterPolicy"]
    drivers = [one for one in found if one.get("kind") == "NVIDIADriver"]
    if len(specs) > 1:
        raise InputError("there are two ClusterPolicies; NVIDIA's operator heeds the oldest one only")
    if not specs and not drivers:
        raise InputError("there is neither a ClusterPolicy nor an NVIDIADriver in it")
    return (specs[0] if specs else None), drivers


def _items(document: object) -> list[Any]:
    if not isinstance(document, dict):
        return []
    items = document.get("items")
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else [document]
