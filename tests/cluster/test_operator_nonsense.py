"""A hundred nodes and a real API server, and in its place now and then something else: nothing is deleted.

`--full` gives 500 random answers and more; a run without it is one round of each kind. A failure names the
seed of its answers.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from driverforge_core import nodekeys
from driverforge_operator.app.control import WATCHED
from driverforge_operator.ports import Kind
from driverforge_operator.state.kinds import CLUSTER_POLICY, NODE, NVIDIA_DRIVER
from support.cluster.faultproxy import Asked, Fault, FaultProxy, fault_proxy
from support.cluster.kubernetes import Api
from support.cluster.operator import DAEMONSETS, NAMESPACE, add_node, ground, launch, merge, metric
from support.fakes.apianswers import PAGE, nonsense, refusal
from support.process import stop, until
from support.samples.operatorcases import policy_spec

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
SYSTEMS = [("ubuntu", "22.04")] * 60 + [("ubuntu", "24.04")] * 39 + [("rocky", "9.5")]
KINDS: tuple[Kind[Any], ...] = (*(kind for kind, _ in WATCHED), NODE)
SERVED = [kind for kind in KINDS if kind.built_in or kind.group == CLUSTER_POLICY.group]
"""What this server has; the others are OpenShift's and Prometheus'."""
CODES = (301, 400, 403, 404, 405, 409, 410, 415, 429, 500, 502, 503, 504)


@pytest.fixture
def fleet(api: Api) -> Iterator[Api]:
    """A hundred nodes, and a ClusterPolicy with drivers for three systems and operands."""
    with ground(api):
        for number, (name, version) in enumerate(SYSTEMS):
            add_node(api, f"op-{number:03}", os_id=name, version=version)
        document = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
        spec = policy_spec("default")
        answer = api.apply(json.dumps({**document, "metadata": {"name": "cluster-policy"}, "spec": spec}))
        assert answer.ok, answer.message
        yield api


def daemonsets(api: Api) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in api.request("GET", DAEMONSETS).body["items"]}


def deletions(api: Api) -> list[str]:
    """Of this test and of those that had the server before."""
    return [one for one in api.requests() if one.startswith("delete")]


def count_pods(api: Api) -> None:
    """Write into the DaemonSets what their controller would: on how many nodes they have pods."""
    nodes = [one["metadata"]["labels"] for one in api.request("GET", "/api/v1/nodes").body["items"]]
    for name, found in daemonsets(api).items():
        selector = found["spec"]["template"]["spec"]["nodeSelector"].items()
        # these nodes have no kubelet that would say so
        wanted = {key: value for key, value in selector if key != nodekeys.ARCH}.items()
        desired = sum(wanted <= labels.items() for labels in nodes)
        counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable")
        status = {**dict.fromkeys((*counts, "updatedNumberScheduled"), desired), "numberMisscheduled": 0}
        status["observedGeneration"] = found["metadata"]["generation"]
        merge(api, f"{DAEMONSETS}/{name}/status", {"status": status})


def path_of(kind: Kind[Any]) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    where = f"namespaces/{kind.namespace or NAMESPACE}/" if kind.namespaced else ""
    return f"{root}/{where}{kind.plural}"


def emptied(body: bytes) -> bytes:
    """A list with nothing in it; a watch, which is no text of JSON, tells nothing."""
    try:
        return json.dumps({**json.loads(body), "items": []}).encode()
    except ValueError:
        return b""


def halved(body: bytes) -> bytes:
    try:
        found = json.loads(body)
        return json.dumps({**found, "items": found["items"][: len(found["items"]) // 2]}).encode()
    except (ValueError, KeyError):
        return b""


def fault(chance: random.Random, kind: Kind[Any]) -> Fault:
    """What comes instead of an answer to a list or a watch."""
    known = nonsense(kind)
    status = chance.choice(CODES)
    return chance.choice(
        [
            Fault(reply=PAGE),
            Fault(reply=replace(PAGE, status=status)),
            Fault(reply=refusal(status)),
            *(Fault(reply=known[chance.choice(sorted(known))]) for _ in range(3)),
            Fault(cut="before"),
            Fault(cut="after"),
        ]
    )


class Nonsense:
    """For the path of each of some kinds, what comes instead of its next answers to lists and watches."""

    def __init__(self, faults: dict[str, list[Fault]]) -> None:
        self._faults = faults
        self._lock = threading.Lock()
        self.given: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Fault | None:
        path = urlsplit(asked.path).path
        with self._lock:
            left = self._faults.get(path)
            if asked.method != "GET" or not left:
                return None
            self.given[path] += 1
            found = left.pop(0)
            # of a watch there is no whole answer that could be changed
            return Fault(reply=PAGE) if found.mangled and asked.watch else found

    @property
    def left(self) -> int:
        with self._lock:
            return sum(map(len, self._faults.values()))


def told(api: Api, name: str, log: Path) -> None:
    """Wait until the operator has acted on a node that came last."""
    add_node(api, name, os_id="ubuntu", version="22.04")
    path = f"/api/v1/nodes/{name}"
    until(
        lambda: nodekeys.GPU_PRESENT in api.request("GET", path).body["metadata"]["labels"],
        f"{name} is labelled",
        log=log,
        timeout=300,
    )


def live_lists(chance: random.Random) -> dict[str, list[Fault]]:
    """Each kind's watch ends with nonsense, and then its list is nonsense, or has not all."""
    found = {}
    for kind in SERVED:
        whole = chance.random() < 0.7
        cut = Fault(mangled=chance.choice([emptied, halved]))
        found[path_of(kind)] = [Fault(reply=PAGE), fault(chance, kind) if whole else cut]
    return found


def first_lists(chance: random.Random) -> dict[str, list[Fault]]:
    """The first lists after a start are nonsense; of nodes and resources some are lists that have not all."""
    found = {path_of(kind): [fault(chance, kind)] for kind in KINDS}
    short = chance.choice([NODE, CLUSTER_POLICY, NVIDIA_DRIVER])
    found[path_of(short)].append(Fault(mangled=chance.choice([emptied, halved])))
    return found


class Rounds:
    """An operator behind a proxy, at the mercy of a seed."""

    def __init__(self, api: Api, proxy: FaultProxy, folder: Path, seed: int) -> None:
        self.api, self.proxy, self.folder = api, proxy, folder
        self.deleted = deletions(api)
        self.chance = random.Random(seed)
        self.answers = 0
        self.number = 0

    def one(self, log: Path, faults: dict[str, list[Fault]], disturb: Callable[[], object]) -> None:
        """Give the faults, and see that the operator goes on, and has deleted nothing."""
        nonsense = Nonsense(faults)
        self.proxy.decide = nonsense
        disturb()
        until(lambda: not nonsense.left, "all nonsense was told", log=log, timeout=300)
        self.proxy.decide = lambda asked: None
        self.number += 1
        told(self.api, f"op-later-{self.number}", log)
        self.answers += sum(nonsense.given.values())
        assert deletions(self.api) == self.deleted

    def life(self, rounds: int) -> None:
        """A start, and rounds while it runs."""
        self.proxy.decide = Nonsense(faults := first_lists(self.chance))
        child, log = launch(
            self.api, self.folder, config=self.proxy.kubeconfig(), name=f"operator-{self.number}"
        )
        try:
            self.one(log, faults, lambda: None)
            for _ in range(rounds):
                self.one(log, live_lists(self.chance), self.proxy.drop)
        finally:
            stop(child)


@pytest.fixture
def settled_fleet(fleet: Api, tmp_path: Path) -> tuple[Api, int]:
    """After an undisturbed run; with the number of DaemonSets."""
    child, log = launch(fleet, tmp_path, name="first")
    try:
        until(lambda: len(daemonsets(fleet)) > 8, "DaemonSets", log=log, timeout=300)
        until(lambda: metric(log, "driverforge_operator_waiting_actions") == 0, "all is written", log=log)
        told(fleet, "op-first", log)
    finally:
        stop(child)
    count_pods(fleet)
    return fleet, len(daemonsets(fleet))


@pytest.mark.parametrize(
    ("seed", "lives", "rounds", "least"),
    [
        pytest.param(1, 1, 1, 45, id="sample"),
        pytest.param(
            random.randrange(1 << 32),
            5,
            3,
            500,
            id="full",
            marks=pytest.mark.full(reason="500 random answers, in the dozen rounds that a sample has two of"),
        ),
    ],
)
def test_nothing_is_deleted_whatever_answers(
    settled_fleet: tuple[Api, int], tmp_path: Path, seed: int, lives: int, rounds: int, least: int
) -> None:
    api, count = settled_fleet
    with fault_proxy(api) as proxy:
        found = Rounds(api, proxy, tmp_path, seed)
        try:
            for _ in range(lives):
                found.life(rounds)
        except BaseException as error:
            error.add_note(f"the seed of these answers: {seed}")
            raise
    assert len(daemonsets(api)) == count
    assert found.answers >= least
