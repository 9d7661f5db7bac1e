"""operator: what NVIDIA's operator took for as many nodes in another run, against ours; and how ours grows.

An API server, nodes that nobody runs, twenty NVIDIADrivers for twenty groups of them. Nothing schedules pods:
what is measured is what the operator does, from its start to the last label, at rest, and for one node.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_core import nodekeys
from support.cluster import kubernetes_build
from support.cluster.kubernetes import Api, api_server
from support.cluster.operator import NAMESPACE, add_driver, establish, launch, merge, page
from support.process import stop, tail, until

POOLS = 20
_FEWEST = 20  # one for each pool
_REST = 60  # seconds
_SILENCE = 3  # seconds
_LEASES = "leases"
_NAME = re.compile(r"label node (\S+):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """NVIDIA's operator v26.7.0, with one pool, recorded on two processors on 2026-11-21.

    Requests until its ClusterPolicy was ready (5,000 nodes: no upgrade label was waited for), its CPU, its
    memory after that, and requests a minute at rest without the lease.
    """

    requests: int
    cpu: float
    memory: int
    at_rest: int


KB, MIB = 1000, 1 << 20
A_NODE = 10 * KB
"""What a node may take over the base, in bytes."""
MOST = {5000: 150 * MIB}
"""What the operator may take at a size, in bytes."""
RECORDED: Mapping[int, Recorded] = {
    100: Recorded(requests=2312, cpu=2.2, memory=99 * MIB, at_rest=101),
    1000: Recorded(requests=18263, cpu=25, memory=490 * MIB, at_rest=1001),
    5000: Recorded(requests=24967, cpu=94, memory=2480 * MIB, at_rest=5001),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one size took. Requests are without the lease's."""

    nodes: int
    labelled: float  # seconds from its start
    requests: Counter[str]
    cpu: float
    memory: int
    at_rest: int
    lease: float  # its requests a minute at rest
    one: Mapping[str, Counter[str]]  # for one node added, changed, deleted


def run(workshop: Workshop) -> tuple[Measure, ...]:
    """Measure 100, 1,000 and 5,000 nodes; `--runs 1` or `2` stops after the first one or two."""
    if workshop.smallest:
        cost = measure(_FEWEST, rest=_SILENCE)
        for text in described(cost, base=cost):
            workshop.note(text)
        return tuple(_measures(cost, RECORDED[100]))
    found, costs = [], list[Cost]()
    for nodes in tuple(RECORDED)[: workshop.runs or None]:
        costs.append(measure(nodes, rest=_REST))
        found += list(_measures(costs[-1], RECORDED[nodes]))
        for text in described(costs[-1], base=costs[0]):
            workshop.note(text)
    return tuple(found)


def measure(nodes: int, *, rest: float) -> Cost:
    """One size, with an API server of its own."""
    with tempfile.TemporaryDirectory(prefix="driverforge-bench-") as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        with api_server(kubernetes_build.programs(), folder / "cluster") as api:
            fill(api, nodes)
            return _measured(api, folder, nodes, rest)


def fill(api: Api, nodes: int) -> None:
    """Definitions, drivers, and nodes of twenty groups in four systems."""
    establish(api)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    assert api.apply(json.dumps(namespace)).ok
    for number in range(POOLS):
        add_driver(api, f"pool-{number}", nodeSelector={"pool": str(number)})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add(api, number), range(nodes)))


def add(api: Api, number: int, *, taint: str = "") -> None:
    """A node of 7 KB with fifty labels, as Node Feature Discovery leaves one; `taint` keeps pods away."""
    systems = (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("rocky", "9.5"), ("rhel", "9.4"))
    os_id, version = systems[number % POOLS % len(systems)]
    labels = {
        nodekeys.OS_ID: os_id,
        nodekeys.OS_VERSION: version,
        nodekeys.OS_MAJOR: version.partition(".")[0],
        nodekeys.KERNEL: "6.8.0-45-generic",
        nodekeys.GPU_FEATURES[0]: "true",
        "pool": str(number % POOLS),
        **{f"{nodekeys.FEATURE}cpu-cpuid.FEATURE{one}": "true" for one in range(40)},
    }
    metadata = {"name": f"bench-{number}", "labels": labels, "annotations": {"example.com/note": "x" * 3000}}
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        **({"spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}} if taint else {}),
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {
                **dict.fromkeys(("machineID", "systemUUID", "bootID", "osImage", "kubeletVersion"), "x"),
                **dict.fromkeys(("kubeProxyVersion", "operatingSystem"), "x"),
                "architecture": "amd64",
                "kernelVersion": "6.8.0-45-generic",
                "containerRuntimeVersion": "containerd://2.1.9",
            },
        },
    }
    answer = api.request("POST", "/api/v1/nodes", json.dumps(document))
    assert answer.ok, answer.message


def _measured(api: Api, folder: Path, nodes: int, rest: float) -> Cost:
    began = time.monotonic()
    child, log = launch(api, folder, "--lease", "30")
    try:
        until(lambda: _labelled(log) >= nodes, "all labelled", timeout=1800, child=child, log=log)
        labelled = time.monotonic() - began
        _until_quiet(api)
        requests = _asked(api)
        cpu = _value(log, "process_cpu_seconds_total")
        one: dict[str, Counter[str]] = {}
        with _counted(api, one, "added"):
            add(api, nodes)
            until(lambda: _labelled(log) > nodes, "a node is labelled", log=log)
        with _counted(api, one, "changed"):
            before = _labelled(log)
            label = {"metadata": {"labels": {nodekeys.DRIVER_SWITCH: None}}}
            merge(api, f"/api/v1/nodes/bench-{nodes}", label)
            until(lambda: _labelled(log) > before, "the label is back", log=log)
        _until_quiet(api)
        with _counted(api, one, "deleted"):
            assert api.request("DELETE", f"/api/v1/nodes/bench-{nodes}").ok
            until(lambda: _value(log, "driverforge_operator_nodes") == nodes, "it is forgotten", log=log)
        before_rest, lease = _asked(api).total(), _of_lease(api)
        time.sleep(rest)
        return Cost(
            nodes=nodes,
            labelled=labelled,
            requests=requests,
            cpu=cpu,
            memory=_peak(child.pid),
            at_rest=_asked(api).total() - before_rest,
            lease=(_of_lease(api) - lease) * 60 / rest,
            one=one,
        )
    finally:
        stop(child)
        if child.returncode:
            print(*tail(log), sep="\n")


def _labelled(log: Path) -> int:
    return len(_NAME.findall(log.read_text()))


def _until_quiet(api: Api) -> None:
    """Wait until it has asked for nothing for a while."""
    asked = Counter[str]()
    while asked != (asked := _asked(api)):
        time.sleep(_SILENCE)


def _value(log: Path, name: str) -> float:
    lines = page(log, "/metrics")[1].splitlines()
    return next((float(one.split()[-1]) for one in lines if one.startswith(f"{name} ")), 0)


def _asked(api: Api) -> Counter[str]:
    """Requests by verb and kind, from the server's audit log."""
    words = (one.split() for one in api.requests())
    return Counter(f"{one[0]} {one[1]}" for one in words if one[1] != _LEASES)


def _of_lease(api: Api) -> int:
    """Requests about leases, which `_asked` leaves out."""
    return sum(one.split()[1] == _LEASES for one in api.requests())


@contextmanager
def _counted(api: Api, into: dict[str, Counter[str]], name: str) -> Iterator[None]:
    before = _asked(api)
    yield
    into[name] = _asked(api) - before


def _peak(pid: int) -> int:
    """The most memory that a process had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def _measures(cost: Cost, theirs: Recorded) -> Iterator[Measure]:
    ours, other = f"{cost.nodes} nodes, {POOLS} pools", "NVIDIA's operator v26.7.0, 1 pool"
    rows: tuple[tuple[str, str, float, float], ...] = (
        ("requests until labelled", "requests", cost.requests.total(), theirs.requests),
        ("CPU until labelled", "s CPU", cost.cpu, theirs.cpu),
        ("memory, most", "bytes", cost.memory, theirs.memory),
        (f"requests in {_REST} s at rest", "requests", cost.at_rest, theirs.at_rest),
    )
    for what, unit, mine, their in rows:
        yield Measure(
            what=what,
            unit=unit,
            ours=Series(of=ours, samples=(mine,)),
            reference=Series(of=other, samples=(their,), recorded=True),
        )


def described(cost: Cost, *, base: Cost) -> Iterator[str]:
    """What a table of ratios does not say. `base` is the smallest size of this run."""
    yield f"{cost.nodes} nodes: all labelled {cost.labelled:.1f} s after the start"
    yield f"  requests: {', '.join(f'{count} {what}' for what, count in cost.requests.most_common())}"
    for what, count in cost.one.items():
        yield f"  one node {what}: {', '.join(f'{number} {one}' for one, number in count.items()) or 'none'}"
    yield f"  lease: {cost.lease:.0f} requests a minute at rest"
    if more := cost.nodes - base.nodes:
        each = (cost.memory - base.memory) / more
        yield f"  memory: {each / KB:.1f} KB a node over {base.nodes} nodes ({_held(each, A_NODE, KB, 'KB')})"
    if bar := MOST.get(cost.nodes):
        yield f"  memory: {cost.memory / MIB:.0f} MiB at most ({_held(cost.memory, bar, MIB, 'MiB')})"


def _held(value: float, bar: int, unit: int, name: str) -> str:
    return f"bar {bar // unit} {name}{'' if value <= bar else ', MISSED'}"
