"""What the operator counts and announces: few, whatever happens, and readable by Prometheus."""

from __future__ import annotations

from typing import Any

from driverforge_operator.app.events import A_MINUTE, Announcer
from driverforge_operator.app.metrics import METRICS, Metrics
from driverforge_operator.app.settled import Settled
from driverforge_operator.plan.actions import Apply, ConditionNow, SetStatus
from driverforge_operator.ports import Ref

REF = Ref(api_version="nvidia.com/v1alpha1", kind="NVIDIADriver", namespace="", name="fleet")


class Applied(list[Any]):
    def apply(self, kind: Any, document: Any) -> Any:
        self.append(document)
        return document


def status(reason: str, message: str = "m") -> SetStatus:
    condition = ConditionNow(type="Error", status="True", reason=reason, message=message)
    return SetStatus(
        ref=REF, state="notReady", namespace="gpu-operator", generation=1, conditions=(condition,)
    )


def test_progress_within_a_reason_is_no_event() -> None:
    applied = Applied()
    announcer = Announcer(applied, "me", clock=lambda: 0.0, now=lambda: "t")  # type: ignore[arg-type]
    before = {"conditions": [{"type": "Error", "reason": "DriverNotReady"}]}
    announcer.status(status("DriverNotReady", "3 of 5"), before, "u")
    announcer.status(status("InvalidSpec"), before, "u")
    assert [(one["reason"], one["metadata"]["namespace"]) for one in applied] == [("InvalidSpec", "default")]


def test_the_same_event_again_counts_the_first_one_up() -> None:
    applied = Applied()
    announcer = Announcer(applied, "me", clock=lambda: 0.0, now=lambda: "t")  # type: ignore[arg-type]
    for _ in range(3):
        announcer.status(status("InvalidSpec"), {}, "u")
    assert len({one["metadata"]["name"] for one in applied}) == 1
    assert [one["count"] for one in applied] == [1, 2, 3]


def test_a_flood_of_events_ends_after_a_few() -> None:
    applied = Applied()
    now = [0.0]
    announcer = Announcer(applied, "me", clock=lambda: now[0], now=lambda: "t")  # type: ignore[arg-type]
    for number in range(10_000):
        announcer.status(status("InvalidSpec", f"{number} {'x' * 5000}"), {}, "u")
    assert len(applied) == A_MINUTE
    assert max(len(one["message"]) for one in applied) == 1024
    now[0] = 61.0
    announcer.status(status("InvalidSpec"), {}, "u")
    assert len(applied) == A_MINUTE + 1


def test_requests_are_counted_by_kind_and_never_by_name() -> None:
    metrics = Metrics()
    metrics.answered("PATCH", "/api/v1/nodes/a", 200)
    metrics.answered("PATCH", "/apis/apps/v1/namespaces/x/daemonsets/a", 200)
    metrics.answered("GET", "/api/v1/namespaces/x", 404)
    metrics.answered("GET", "/apis", 200)
    metrics.answered("GET", "/apis/nvidia.com/v1", 200)
    found = [one for one in metrics.text().splitlines() if one.startswith("driverforge_operator_requests")]
    assert sorted(one.partition("kind=")[2].partition(",")[0] for one in found) == [
        '"daemonsets"',
        '"discovery"',
        '"namespaces"',
        '"nodes"',
    ]


def test_every_metric_that_is_set_has_a_help_text() -> None:
    metrics = Metrics()
    for name in METRICS:
        metrics.add(name)
    lines = metrics.text().splitlines()
    assert sum(one.startswith("# HELP") for one in lines) == len(METRICS)


def test_what_the_server_says_in_other_words_is_written_once() -> None:
    def document(cpu: str, **metadata: str) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "d", "namespace": "n", **metadata},
            "spec": {"cpu": cpu},
        }

    settled, wanted = Settled(), Apply(document=document("1000m"))
    objects = {wanted.ref: document("1", resourceVersion="7")}
    assert not settled.covers(wanted, objects)
    settled.note(wanted.document, objects[wanted.ref])
    assert settled.covers(wanted, {wanted.ref: {**document("1", resourceVersion="9"), "status": {"a": 1}}})
    assert not settled.covers(wanted, {wanted.ref: document("2")})
    assert not settled.covers(Apply(document=document("1001m")), objects)
    assert not settled.covers(wanted, {})
