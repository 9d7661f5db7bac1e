"""Read what the findings are made from; what the user may not read is told, not a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from driverforge_core.errors import InputError, NotPermitted
from driverforge_operator.crd.schema import cluster_policy, nvidia_driver
from driverforge_operator.explain.gate import Gate
from driverforge_operator.explain.gates import closed, gates
from driverforge_operator.explain.installation import Installation, rights
from driverforge_operator.explain.scene import Scene, Sight
from driverforge_operator.ports import Inspector, Kind, Log, Page
from driverforge_operator.state.kinds import CLUSTER_POLICY, DEFINITION, NVIDIA_DRIVER
from driverforge_operator.state.workloads import (
    DAEMON_SET,
    DEPLOYMENT,
    EVENT,
    MACHINE,
    NAMESPACE,
    POD,
)

LINES = 200  # of a log: what a compiler says of one error, and the words around it
Item = TypeVar("Item")


class Looks:
    """Lists what may be listed, and remembers what may not."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self.unread: list[str] = []
        self.hidden: set[str] = set()
        """Plurals of kinds of which not all may be listed."""
        self.undumped: set[str] = set()
        """Plurals of kinds that are not in a dump, or that the server does not have."""

    def everywhere(self, kind: Kind[Item], fields: str = "") -> Sequence[Item]:
        """Of all namespaces; of ours alone where the user may not see the others."""
        pages = partial(self._inspector.everywhere, kind, fields=fields)
        what = f"{kind.plural} of all namespaces" if kind.namespaced else kind.plural
        found = self._noted(what, lambda: list(pages()))
        if found is None:
            self.hidden.add(kind.plural)
            return self.ours(kind) if kind.namespaced else ()
        if not all(page.dumped for page in found):
            self.undumped.add(kind.plural)
        return _items(found)

    def ours(self, kind: Kind[Item]) -> Sequence[Item]:
        return self._noted(kind.plural, lambda: _items(self._inspector.pages(kind))) or ()

    def noted(self, kind: Kind[Item], *, labels: str = "") -> Sequence[Item]:
        """Of our namespace, as `ours`; remembers of the kind whether there was anything to list."""
        found = self._noted(kind.plural, lambda: list(self._inspector.pages(kind, labels=labels)))
        if found is None:
            self.hidden.add(kind.plural)
        elif not all(page.served and page.dumped for page in found):
            self.undumped.add(kind.plural)
        return _items(found or ())

    def log(self, log: Log, lines: int = LINES) -> tuple[str, ...]:
        what = f"log of {log.container} of pod {log.namespace}/{log.pod}"
        return self._noted(what, lambda: self._inspector.tail(log, lines)) or ()

    def _noted(self, what: str, read: Callable[[], Item]) -> Item | None:
        try:
            return read()
        except NotPermitted as error:
            self.unread.append(f"{what}: {'; '.join((error.brief, *error.details))}")
            return None


def _items(pages: Iterable[Page[Item]]) -> Sequence[Item]:
    return [one for page in pages for one in page.items]


def look(inspector: Inspector, namespace: str, *, node: str = "") -> Sight:
    """Everything, or what concerns one node."""
    looks = Looks(inspector)
    nodes = looks.everywhere(MACHINE, f"metadata.name={node}" if node else "")
    # a pod that waits for its place is on no node yet
    selectors = (f"spec.nodeName={node}", "spec.nodeName=") if node else ()
    listed = [looks.everywhere(POD, fields) for fields in selectors] or [looks.ours(POD)]
    pods = {(one.metadata.namespace, one.metadata.name): one for found in listed for one in found}
    daemonsets = [one for one in looks.everywhere(DAEMON_SET) if one.spec.template.spec.component]
    sight = Sight(
        namespace=namespace,
        nodes={one.metadata.name: one for one in nodes},
        pods=tuple(pods.values()),
        # what somebody applied by hand in another namespace comes after ours
        daemonsets=sorted(daemonsets, key=lambda one: one.metadata.namespace != namespace),
        warnings=looks.everywhere(EVENT, "type=Warning"),
        policies={one.metadata.name: one for one in looks.everywhere(CLUSTER_POLICY)},
        drivers={one.metadata.name: one for one in looks.everywhere(NVIDIA_DRIVER)},
        unread=tuple(dict.fromkeys(looks.unread)),
        hidden=frozenset(looks.hidden),
    )
    undumped = frozenset(looks.undumped - _needless(sight))
    return replace(sight, unread=(*sight.unread, *_not_dumped(undumped)), undumped=undumped)


def _needless(sight: Sight) -> set[str]:
    """The kind of custom resources that a cluster with the other one may well do without."""
    if sight.drivers:
        return {CLUSTER_POLICY.plural}
    return {NVIDIA_DRIVER.plural} if sight.policy and not sight.drivers_by_resource else set()


def _not_dumped(plurals: Iterable[str]) -> list[str]:
    return [f"{one}: the dump has none, and the cluster may have some" for one in sorted(plurals)]


def explain(inspector: Inspector, namespace: str, node: str) -> tuple[Sight, tuple[Gate, ...]]:
    """The gates of one node, with the log of the container that the closed one waits for.

    Raises InputError where there is no such node, NotPermitted where nodes may not be read.
    """
    sight = look(inspector, namespace, node=node)
    machine = sight.nodes.get(node)
    if machine is None and MACHINE.plural in sight.hidden:
        raise NotPermitted(
            f"nodes may not be read, so nobody can say why {node} waits",
            details=sight.unread,
            resolution="ask an administrator for the right to list nodes; "
            "kubectl auth can-i list nodes says whether you have it",
        )
    if machine is None:
        raise InputError(
            f"there is no node {node}", details=sight.unread, resolution="kubectl get nodes shows their names"
        )
    found = gates(Scene(node=machine, sight=sight))
    shut = closed(found)
    stuck = shut.culprit if shut else None
    if stuck is None:
        return sight, found
    looks = Looks(inspector)
    # what kubectl logs prints of a container that waits for its restart is its life before, too
    log = looks.log(stuck.log) or (
        looks.log(replace(stuck.log, previous=False)) if stuck.log.previous else ()
    )
    sight = replace(sight, logs={stuck.log: log}, unread=(*sight.unread, *looks.unread))
    return sight, gates(Scene(node=machine, sight=sight))


def installation(inspector: Inspector, namespace: str) -> Installation:
    """What the doctor judges."""
    sight = look(inspector, namespace)
    looks = Looks(inspector)
    definitions = {one["metadata"]["name"]: one for one in looks.everywhere(DEFINITION)}
    namespaces = looks.everywhere(NAMESPACE, f"metadata.name={namespace}")
    deployments = looks.everywhere(DEPLOYMENT)
    answers = {right: inspector.may(right) for right in rights(namespace)}
    return Installation(
        sight=replace(
            sight,
            unread=(*sight.unread, *looks.unread, *_not_dumped(looks.undumped)),
            hidden=sight.hidden.union(looks.hidden),
            undumped=sight.undumped.union(looks.undumped),
        ),
        ours=(cluster_policy(), nvidia_driver()),
        served={name: one for name, one in definitions.items() if name.endswith(".nvidia.com")},
        namespace=next(iter(namespaces), None),
        deployments=deployments,
        refused=[right for right, answer in answers.items() if answer is False],
        live=None not in answers.values(),
    )
