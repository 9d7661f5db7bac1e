"""Who may write, and when that ends, whatever clocks and answers do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from driverforge_core.errors import TemporaryFailure
from driverforge_operator.app.lease import Elector, Fenced, NotLeading, Terms
from driverforge_operator.app.theirs import Theirs
from driverforge_operator.ports import Conflict, Gone
from driverforge_operator.state.kinds import (
    LEASE_NAME,
    LEASES,
    NODE,
    THEIR_DEPLOYMENT,
    THEIR_LEASE,
    DeploymentDocument,
    LeaseDocument,
)

SECONDS = 30


class Server:
    """One lease, as an API server keeps it; `lost` answers are written and not told."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None
        self.version = 0
        self.down = self.lost = False
        self.patched: list[str] = []

    def get(self, kind: Any, name: str) -> Any:
        self._answer()
        if self.spec is None:
            raise Gone("no lease")
        document = {"metadata": {"name": LEASE_NAME, "resourceVersion": str(self.version)}, "spec": self.spec}
        return msgspec.convert(document, LeaseDocument)

    def create(self, kind: Any, document: Any) -> Any:
        self._answer()
        if self.spec is not None:
            raise Conflict("it is there")
        self.spec, self.version = dict(document["spec"]), 1
        return {"metadata": {"resourceVersion": "1"}}

    def patch(self, kind: Any, name: str, body: Any, *, part: str = "") -> str:
        self._answer()
        if kind is NODE:
            self.patched.append(name)
            return "1"
        assert self.spec is not None
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("another version")
        self.spec.update(body["spec"])
        self.version += 1
        if self.lost:
            raise TemporaryFailure("no answer")
        return str(self.version)

    def _answer(self) -> None:
        if self.down:
            raise TemporaryFailure("no answer")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def elector(server: Any, name: str, clock: Clock) -> Elector:
    return Elector(server, name, Terms(seconds=SECONDS), clock=clock)


def test_one_of_two_leads() -> None:
    server, clock = Server(), Clock()
    one, other = elector(server, "one", clock), elector(server, "other", clock)
    for _ in range(10):
        one.step()
        other.step()
        clock.now += 6
        assert one.leads()
        assert not other.leads()


def test_who_cannot_renew_stops_before_another_one_begins() -> None:
    server, clock = Server(), Clock()
    one, other = elector(server, "one", clock), elector(server, "other", clock)
    one.step()
    other.step()
    server.down = True
    with pytest.raises(TemporaryFailure):
        one.step()
    seen = []
    for _ in range(40):
        clock.now += 1
        server.down = False
        other.step()
        seen.append((one.leads(), other.leads()))
    assert (True, True) not in seen
    assert seen[-1] == (False, True)
    assert seen.count((False, False)) >= SECONDS / 4


def test_a_deadline_counts_from_before_the_request() -> None:
    clock = Clock()

    class Slow(Server):
        def patch(self, kind: Any, name: str, body: Any, *, part: str = "") -> str:
            clock.now += 19
            return super().patch(kind, name, body, part=part)

    one = elector(Slow(), "one", clock)
    one.step()
    one.step()
    assert one.leads()
    clock.now += 1
    assert not one.leads()


def test_an_answer_that_was_lost_costs_no_lease() -> None:
    server, clock = Server(), Clock()
    one = elector(server, "one", clock)
    one.step()
    server.lost = True
    with pytest.raises(TemporaryFailure):
        one.step()
    server.lost = False
    clock.now += 6
    one.step()
    assert one.leads()


def test_a_process_that_was_stopped_asks_before_it_writes() -> None:
    server, clock = Server(), Clock()
    one, other = elector(server, "one", clock), elector(server, "other", clock)
    fenced: Any = Fenced(server, one.leads)  # type: ignore[arg-type]
    one.step()
    other.step()
    clock.now += SECONDS + 1
    other.step()
    with pytest.raises(NotLeading):
        fenced.patch(NODE, "n", {})
    one.step()
    assert not one.leads()
    assert not server.patched


def test_a_lease_that_is_given_back_is_taken_at_once() -> None:
    server, clock = Server(), Clock()
    one, other = elector(server, "one", clock), elector(server, "other", clock)
    one.step()
    one.release()
    assert not one.leads()
    other.step()
    assert other.leads()


def test_a_lease_whose_object_was_deleted_is_made_again() -> None:
    server, clock = Server(), Clock()
    one = elector(server, "one", clock)
    one.step()
    server.spec, server.version = None, 0

    def gone(kind: Any, name: str, body: Any, *, part: str = "") -> str:
        raise Gone("no lease")

    server.patch = gone  # type: ignore[method-assign]
    one.step()
    assert one.leads()


def their_lease(version: str, holder: str = "theirs") -> LeaseDocument:
    document = {
        "metadata": {"name": "53822513.nvidia.com", "namespace": "gpu", "resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }
    return msgspec.convert(document, LeaseDocument)


def test_their_lease_counts_while_it_is_renewed() -> None:
    clock = Clock()
    theirs = Theirs("ours", clock)
    theirs.put(THEIR_LEASE, their_lease("1"))
    assert "holds the lease gpu/53822513.nvidia.com" in theirs.running()
    clock.now += 14
    # the same version, from another list
    theirs.put(THEIR_LEASE, their_lease("1"))
    clock.now += 2
    assert not theirs.running()
    theirs.put(THEIR_LEASE, their_lease("2"))
    assert theirs.running()
    theirs.put(THEIR_LEASE, their_lease("3", holder=""))
    assert not theirs.running()


def test_their_deployment_counts_unless_it_is_scaled_to_nothing() -> None:
    theirs = Theirs("ours")

    def deployment(replicas: int) -> DeploymentDocument:
        document = {"metadata": {"name": "op", "namespace": "gpu"}, "spec": {"replicas": replicas}}
        return msgspec.convert(document, DeploymentDocument)

    theirs.put(THEIR_DEPLOYMENT, deployment(1))
    assert "Deployment gpu/op" in theirs.running()
    theirs.put(THEIR_DEPLOYMENT, deployment(0))
    assert not theirs.running()
    theirs.put(THEIR_DEPLOYMENT, deployment(2))
    theirs.keep_only(THEIR_DEPLOYMENT, frozenset())
    assert not theirs.running()


def our_lease(namespace: str, created: str, version: str = "1", holder: str = "one") -> LeaseDocument:
    metadata = {"name": LEASE_NAME, "namespace": namespace, "resourceVersion": version}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 30}
    return msgspec.convert(
        {"metadata": {**metadata, "creationTimestamp": created}, "spec": spec}, LeaseDocument
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "2026-01-01T00:00:01Z"), ("b", "2026-01-01T00:00:00Z")),
        (("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")),
    ],
    ids=["by age", "by name at the same second"],
)
def test_of_two_operators_the_younger_one_stands_down(one: tuple[str, str], other: tuple[str, str]) -> None:
    found = {}
    for namespace in (one[0], other[0]):
        theirs = Theirs(namespace)
        for lease in (our_lease(*one), our_lease(*other)):
            theirs.put(LEASES, lease)
        found[namespace] = theirs.older()
    assert found == {one[0]: other[0], other[0]: ""}


def test_an_operator_that_does_not_know_its_age_is_the_younger_one() -> None:
    theirs = Theirs("a")
    assert not theirs.older()
    theirs.put(LEASES, our_lease("b", "2026-01-01T00:00:00Z"))
    assert theirs.older() == "b"


def test_an_older_operator_counts_through_an_upgrade_and_no_longer() -> None:
    clock = Clock()
    theirs = Theirs("b", clock)
    theirs.put(LEASES, our_lease("b", "2026-01-02T00:00:00Z"))
    theirs.put(LEASES, our_lease("a", "2026-01-01T00:00:00Z"))
    theirs.put(LEASES, our_lease("a", "2026-01-01T00:00:00Z", version="2", holder=""))
    clock.now += 60
    assert theirs.older() == "a"
    clock.now += 250
    assert not theirs.older()
    theirs.put(LEASES, our_lease("a", "2026-01-01T00:00:00Z", version="3"))
    assert theirs.older() == "a"
    # its cleanup takes it away
    theirs.remove(LEASES, our_lease("a", "2026-01-01T00:00:00Z"))
    assert not theirs.older()


def test_a_list_of_one_lease_leaves_the_other_one() -> None:
    theirs = Theirs("a")
    theirs.put(LEASES, our_lease("b", "2026-01-01T00:00:00Z"))
    theirs.put(THEIR_LEASE, their_lease("1"))
    theirs.keep_only(THEIR_LEASE, frozenset())
    assert (theirs.older(), theirs.running()) == ("b", "")
    theirs.keep_only(LEASES, frozenset())
    assert not theirs.older()
