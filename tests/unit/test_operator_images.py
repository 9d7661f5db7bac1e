"""An image is looked for before a driver changes: what is missing stays as it is, and says what to do."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from driverforge_core import nodekeys
from driverforge_oci.auth import Login
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST
from driverforge_operator.app.look import explain
from driverforge_operator.app.lookups import Lookups, looked_up
from driverforge_operator.app.store import Store
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.cluster.registries import ImageRegistries
from driverforge_operator.crd.kubernetes import LONGEST_MESSAGE
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.gates import closed
from driverforge_operator.plan.actions import Action, Apply, Delete, SetStatus
from driverforge_operator.plan.whole import asked_for, plan
from driverforge_operator.ports import Answer, Document, Kind, Page, Question, Ref
from driverforge_operator.state.kinds import CustomResource, Metadata, NodeDocument
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State
from driverforge_operator.state.surroundings import Surroundings
from driverforge_operator.state.workloads import DAEMON_SET, POD
from support.fakes.memoryregistry import HOST, MemoryRegistry
from support.process import until
from support.samples.operatorcases import policy_spec
from support.samples.scenes import empty

REPOSITORY = f"{HOST}/nvidia"
KERNEL = "5.15.0-131-generic"
JIT, NEWER = f"{REPOSITORY}/driver:580.95.05-ubuntu22.04", f"{REPOSITORY}/driver:590.1-ubuntu22.04"
PRECOMPILED = f"{REPOSITORY}/driver:580-{KERNEL}-ubuntu22.04"
SPEC = {
    "repository": REPOSITORY,
    "image": "driver",
    "version": "580.95.05",
    "default": True,
    "manager": {"repository": REPOSITORY, "image": "manager", "version": "1"},
}


def node(name: str, arch: str = "amd64") -> Node:
    labels = {
        nodekeys.GPU_FEATURES[0]: "true",
        nodekeys.OS_ID: "ubuntu",
        nodekeys.OS_VERSION: "22.04",
        nodekeys.KERNEL: KERNEL,
    }
    document = {
        "metadata": {"name": name, "labels": labels},
        "status": {"nodeInfo": {"architecture": arch}},
    }
    return Node.of(msgspec.convert(document, NodeDocument))


def cluster(images: dict[str, str], *, annotations: dict[str, str] | None = None, **spec: Any) -> State:
    """A cluster of an x86 node whose registry says this of images."""
    metadata = Metadata(name="x", uid="uid-x", annotations=annotations or {})
    answers = {
        Question(image=image, arch="amd64"): Answer(found=found)  # type: ignore[arg-type]
        for image, found in images.items()
    }
    return State(
        namespace="gpu-operator",
        nodes={"a": node("a")},
        policies={},
        drivers={"x": CustomResource(metadata=metadata, spec={**SPEC, **spec})},
        objects={},
        around=Surroundings(images=answers),
    )


def workloads(actions: list[Action]) -> list[Document]:
    """The DaemonSets that are rolled out."""
    found = [one.document for one in actions if isinstance(one, Apply)]
    return [one for one in found if one["kind"] == "DaemonSet"]


def images(actions: list[Action]) -> list[str]:
    return [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in workloads(actions)]


def condition(actions: list[Action]) -> tuple[str, str]:
    (told,) = [one.conditions[1] for one in actions if isinstance(one, SetStatus)]
    return told.reason, told.message


def test_an_image_that_is_there_is_rolled_out() -> None:
    assert images(plan(cluster({JIT: "yes"}))) == [JIT]


def test_nothing_changes_before_a_registry_was_asked() -> None:
    actions = plan(cluster({}))
    assert images(actions) == []
    assert not [one for one in actions if isinstance(one, SetStatus)]


def test_a_registry_that_does_not_tell_has_not_said_no() -> None:
    assert images(plan(cluster({JIT: "unknown"}))) == [JIT]


def refused(**spec: Any) -> str:
    """What is told where no registry has the images of a driver."""
    state = cluster({}, **spec)
    while unasked := asked_for(state) - (state.around.images or {}).keys():
        answers = {**(state.around.images or {}), **dict.fromkeys(unasked, Answer(found="no"))}
        state = replace(state, around=replace(state.around, images=answers))
    actions = plan(state)
    assert not workloads(actions)
    reason, message = condition(actions)
    assert reason == "ImageMissing"
    return message


WHOLE = {"repository": None, "version": None}
PUSH = f" --registry {REPOSITORY} --push"
JIT_CELL = "'ubuntu22.04-amd64-580.95.05-jit'"


@pytest.mark.parametrize(
    ("spec", "image", "command"),
    [
        ({}, JIT, f"'ubuntu22.04-amd64-580.95.05-jit'{PUSH}"),
        (
            {"usePrecompiled": True, "version": "580"},
            PRECOMPILED,
            f"'ubuntu22.04-amd64-580.*-{KERNEL}'{PUSH}",
        ),
        ({**WHOLE, "image": NEWER}, NEWER, f"'ubuntu22.04-amd64-590.1-jit'{PUSH}"),
        # KubeSphere's, with the kernel in the version
        ({"version": f"580-{KERNEL}"}, PRECOMPILED, f"'ubuntu22.04-amd64-580.*-{KERNEL}'{PUSH}"),
        ({"version": "580"}, f"{REPOSITORY}/driver:580-ubuntu22.04", f"'ubuntu22.04-amd64-580.*-jit'{PUSH}"),
        # the command pushes to a name of its own
        ({"image": "mine"}, f"{REPOSITORY}/mine:580.95.05-ubuntu22.04", "'ubuntu22.04-amd64-580.95.05-jit'"),
        (
            {"repository": "registry.example.com:5000"},
            "registry.example.com:5000/driver:580.95.05-ubuntu22.04",
            "'ubuntu22.04-amd64-580.95.05-jit' --registry registry.example.com:5000 --push",
        ),
        (
            {"image": "deep/driver"},
            f"{REPOSITORY}/deep/driver:580.95.05-ubuntu22.04",
            f"'ubuntu22.04-amd64-580.95.05-jit' --registry {REPOSITORY}/deep --push",
        ),
        # no registry of one's own to push to
        ({"repository": None, "image": "driver"}, "driver:580.95.05-ubuntu22.04", JIT_CELL),
        ({**WHOLE, "image": "driver:580.95.05-ubuntu22.04"}, "driver:580.95.05-ubuntu22.04", JIT_CELL),
    ],
)
def test_a_missing_image_names_the_command_that_makes_it(
    spec: dict[str, Any], image: str, command: str
) -> None:
    told = f"ubuntu22.04: no registry has {image} for amd64"
    assert refused(**spec) == f"{told}: driverforge build --select {command}"


def test_a_node_without_an_architecture_may_have_any() -> None:
    state = replace(cluster({}), nodes={"a": node("a", "")})
    answers = dict.fromkeys(asked_for(state), Answer(found="no"))
    _, message = condition(plan(replace(state, around=Surroundings(images=answers))))
    build = f"driverforge build --select 'ubuntu22.04-*-580.95.05-jit'{PUSH}"
    assert message == f"ubuntu22.04: no registry has {JIT}: {build}"


@pytest.mark.parametrize(
    ("spec", "image"),
    [
        ({"version": f"sha256:{'a' * 64}"}, f"{REPOSITORY}/driver@sha256:{'a' * 64}"),
        ({**WHOLE, "image": f"{REPOSITORY}/driver:latest"}, f"{REPOSITORY}/driver:latest"),
        ({**WHOLE, "image": "driver"}, "driver"),
        ({"version": "580.95.05-grid"}, f"{REPOSITORY}/driver:580.95.05-grid-ubuntu22.04"),
        ({"driverType": "vgpu"}, JIT),
        # the matrix has no row of it
        (
            {**WHOLE, "image": f"{REPOSITORY}/driver:580.95.05-rhcos4.16"},
            f"{REPOSITORY}/driver:580.95.05-rhcos4.16",
        ),
    ],
)
def test_what_no_command_makes_has_none(spec: dict[str, Any], image: str) -> None:
    assert refused(**spec) == f"ubuntu22.04: no registry has {image} for amd64"


def test_the_old_driver_stays_while_the_new_image_is_missing() -> None:
    before = cluster({JIT: "yes"})
    there = {Ref.of(one.document): one.document for one in plan(before) if isinstance(one, Apply)}
    after = replace(cluster({NEWER: "no"}, version="590.1"), objects=there)
    actions = plan(after)
    assert not [one for one in actions if isinstance(one, (Apply, Delete))]
    (status,) = [one for one in actions if isinstance(one, SetStatus)]
    (pool,) = status.pools
    assert pool["image"] == JIT
    # of several pools each says what is missing there
    assert condition(actions) == (pool["reason"], f"ubuntu22.04: {pool['message']}")
    assert pool["message"].startswith(f"no registry has {NEWER} for amd64: driverforge build ")


@pytest.mark.parametrize(
    ("spec", "arch"),
    [
        ({}, "arm64"),
        ({}, "amd64"),
        ({"usePrecompiled": True, "version": "580"}, "arm64"),
        # without --push
        ({"image": "mine"}, "arm64"),
    ],
)
def test_explain_gives_a_node_the_command_that_its_pools_condition_has(
    tmp_path: Path, spec: dict[str, Any], arch: str
) -> None:
    """Of several pools that all miss their image."""
    before = cluster({}, **spec)
    labels = {nodekeys.GPU_PRESENT: "true", f"{nodekeys.DEPLOY}driver": "true"}
    machines = {
        name: {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**labels, **node(name).labels, **further}},
            "status": {"nodeInfo": {"architecture": name, "kernelVersion": KERNEL}},
        }
        for name, further in (
            ("amd64", {}),
            ("arm64", {}),
            ("rocky", {nodekeys.OS_ID: "rocky", nodekeys.OS_VERSION: "9.5"}),
        )
    }
    nodes = {name: Node.of(msgspec.convert(one, NodeDocument)) for name, one in machines.items()}
    state = replace(before, nodes=nodes)
    answers = {one: Answer(found="no") for one in asked_for(state)}
    state = replace(state, around=Surroundings(images=answers))
    _, message = condition(plan(state))
    assert message.count("driverforge build") == 3

    def explained(state: State) -> Finding:
        (status,) = (one for one in plan(state) if isinstance(one, SetStatus))
        told = [msgspec.to_builtins(one) for one in status.conditions]
        driver = {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "NVIDIADriver",
            "metadata": {"name": "x"},
            "spec": {"default": True},
            "status": {"conditions": told, "pools": [dict(one) for one in status.pools]},
        }
        (tmp_path / "dump.yaml").write_text(
            yaml.safe_dump_all([driver, *machines.values(), *map(empty, (POD, DAEMON_SET))])
        )
        _, gates = explain(Dump(tmp_path), "gpu-operator", arch)
        gate = closed(gates)
        assert gate is not None
        assert gate.finding is not None
        return gate.finding

    finding = explained(state)
    assert f"'ubuntu22.04-{arch}-" in finding.command
    assert finding.command in message
    assert "driverforge build" not in finding.told
    # what is rejected elsewhere does not hide it
    rejected = {Ref(api_version="v1", kind="Node", namespace="", name="rocky"): "403 no"}
    assert explained(replace(state, around=Surroundings(images=answers, rejected=rejected))).cause == (
        finding.cause
    )
    # and another pool's image is not what this node waits for
    there = {one: Answer(found="no" if "rocky" in one.image else "yes") for one in answers}
    assert "driverforge build" not in explained(replace(state, around=Surroundings(images=there))).command


def test_a_node_compiles_where_that_is_allowed() -> None:
    allowed = {nodekeys.JIT_VERSION: "580.95.05"}
    answers = {PRECOMPILED: "no", JIT: "yes"}
    actions = plan(cluster(answers, annotations=allowed, usePrecompiled=True, version="580"))
    assert images(actions) == [JIT]
    (workload,) = [
        one.document for one in actions if isinstance(one, Apply) and one.document["kind"] == "DaemonSet"
    ]
    selector = workload["spec"]["template"]["spec"]["nodeSelector"]
    assert selector[nodekeys.KERNEL] == KERNEL
    # the pool is the same afterwards: its name does not change
    ready = plan(cluster({PRECOMPILED: "yes"}, usePrecompiled=True, version="580"))
    assert workload["metadata"]["name"] in {one.ref.name for one in ready if isinstance(one, Apply)}


BUILD = f"driverforge build --select 'ubuntu22.04-amd64-580.*-{KERNEL}'{PUSH}"
MISSING = f"no registry has {PRECOMPILED} for amd64: {BUILD}"


def compiling(**answers: str) -> State:
    """A cluster whose node may compile: what the registry says of both images."""
    said = {PRECOMPILED: answers["precompiled"], JIT: answers["jit"]}
    allowed = {nodekeys.JIT_VERSION: "580.95.05"}
    return cluster(said, annotations=allowed, usePrecompiled=True, version="580")


def rolled_out(state: State) -> State:
    """The same, once its driver's pod is ready."""
    done = dict.fromkeys(("desiredNumberScheduled", "numberAvailable", "updatedNumberScheduled"), 1)
    objects = {
        one.ref: {
            **one.document,
            "metadata": {**one.document["metadata"], "generation": 1},
            "status": {"observedGeneration": 1, **done},
        }
        for one in plan(state)
        if isinstance(one, Apply)
    }
    return replace(state, objects=objects)


def test_what_compiles_meanwhile_says_which_image_is_missing_and_its_command() -> None:
    state = compiling(precompiled="no", jit="yes")
    reason, message = condition(plan(state))
    assert reason == "DriverNotReady"
    assert message.endswith(f" is not rolled out yet; ubuntu22.04: nodes compile, since {MISSING}")
    (status,) = (one for one in plan(rolled_out(state)) if isinstance(one, SetStatus))
    assert status.state == "ready"
    assert [(one.reason, one.message) for one in status.conditions if one.status == "True"] == [
        ("Reconciled", f"ubuntu22.04: nodes compile, since {MISSING}")
    ]
    told = [(one["reason"], one["message"]) for one in status.pools]
    assert told == [("", f"nodes compile, since {MISSING}")]


def test_labels_that_have_no_effect_are_told_beside_it() -> None:
    state = compiling(precompiled="no", jit="yes")
    (driver,) = state.drivers.values()
    labelled = CustomResource(metadata=driver.metadata, spec={**driver.spec, "labels": {"app": "mine"}})
    done = rolled_out(replace(state, drivers={"x": labelled}))
    (status,) = (one for one in plan(done) if isinstance(one, SetStatus))
    assert status.conditions[0].message == (
        "spec.labels: app: these labels have no effect: the operator finds its DaemonSets by them; "
        f"ubuntu22.04: nodes compile, since {MISSING}"
    )


def test_a_policy_says_too_that_nodes_compile_meanwhile() -> None:
    state = compiling(precompiled="no", jit="yes")
    (driver,) = state.drivers.values()
    spec = policy_spec("default")
    spec["driver"] |= {key: value for key, value in driver.spec.items() if key != "default"}
    spec["daemonsets"]["labels"] = {}
    policy = CustomResource(metadata=driver.metadata, spec=spec)
    by_policy = replace(state, drivers={}, policies={"x": policy})
    reason, message = condition(plan(by_policy))
    assert reason == "OperandNotReady"
    assert message.endswith(f"; ubuntu22.04: nodes compile, since {MISSING}")
    (status,) = (one for one in plan(rolled_out(by_policy)) if isinstance(one, SetStatus))
    assert status.conditions[0].message == f"ubuntu22.04: nodes compile, since {MISSING}"


def test_where_both_images_are_missing_either_command_helps() -> None:
    reason, message = condition(plan(compiling(precompiled="no", jit="no")))
    assert reason == "ImageMissing"
    build = f"driverforge build --select 'ubuntu22.04-amd64-580.95.05-jit'{PUSH}"
    assert message == (
        f"ubuntu22.04: {MISSING}; nodes could compile instead, but no registry has {JIT} for amd64: {build}"
    )


def test_many_kernels_without_an_image_are_a_few_and_a_number() -> None:
    state = compiling(precompiled="no", jit="yes")
    (first,) = state.nodes.values()
    kernels = [f"5.15.0-{number}-generic" for number in range(100, 200)]
    nodes = {
        kernel: replace(first, name=kernel, kernel=kernel, labels={**first.labels, nodekeys.KERNEL: kernel})
        for kernel in kernels
    }
    many = replace(state, nodes=nodes)
    answers = {one: Answer(found="yes" if one.image == JIT else "no") for one in asked_for(many)}
    answers[Question(image=JIT, arch="amd64")] = Answer(found="yes")
    around = replace(many.around, images=answers)
    (status,) = (one for one in plan(rolled_out(replace(many, around=around))) if isinstance(one, SetStatus))
    assert status.conditions[0].reason == "Reconciled"
    assert status.conditions[0].message.endswith("; and at least 90 more pools")
    assert len(status.conditions[0].message) < 2000


def test_a_side_cars_image_has_no_command() -> None:
    gds = {"enabled": True, "repository": REPOSITORY, "image": "nvidia-fs", "version": "2.17.4"}
    image = f"{REPOSITORY}/nvidia-fs:2.17.4-ubuntu22.04"
    told = condition(plan(cluster({JIT: "yes", image: "no"}, gds=gds)))
    assert told == ("ImageMissing", f"ubuntu22.04: no registry has {image} for amd64")


def test_what_is_told_of_a_pool_is_no_longer_than_a_condition() -> None:
    gds = {"enabled": True, "repository": REPOSITORY, "image": "nvidia-fs", "version": "2.17.5" + "x" * 40000}
    actions = plan(cluster({JIT: "yes"}, gds=gds, kernelModuleType="proprietary"))
    (status,) = [one for one in actions if isinstance(one, SetStatus)]
    (pool,) = status.pools
    assert pool["reason"] == condition(actions)[0] == "InvalidSpec"
    assert len(pool["message"]) == len(condition(actions)[1]) == LONGEST_MESSAGE


def test_what_a_registry_said_stands_while_it_says_nothing() -> None:
    """One that limits requests (429) answers now and then: nothing comes and goes with it."""
    store = Store("gpu-operator", asks_registries=True)
    question = Question(image=JIT, arch="amd64")

    def said() -> str:
        images = store.state.around.images
        assert images is not None
        return images[question].found

    for answer, stands in (("unknown", "unknown"), ("no", "no"), ("unknown", "no"), ("yes", "yes")):
        store.answer(question, Answer(found=answer))  # type: ignore[arg-type]
        assert said() == stands


def since(*answers: Answer) -> list[tuple[str, str]]:
    """What a store has of an image after each answer, and what the registry said since."""
    store, question = Store("gpu-operator", asks_registries=True), Question(image=JIT, arch="amd64")
    found = []
    for answer in answers:
        store.answer(question, answer)
        images = store.state.around.images
        assert images is not None
        found.append((images[question].found, images[question].since))
    return found


NO, LIMITED, EXPIRED, AWAY = (
    Answer(found="no"),
    Answer(found="unknown", reason="429 Too Many Requests"),
    Answer(found="unknown", reason="401 Unauthorized: token expired"),
    Answer(found="unknown", reason="503 Service Unavailable"),
)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        # now and then is nothing to tell
        ((NO, LIMITED, NO, LIMITED, LIMITED, NO), ""),
        ((NO, EXPIRED, EXPIRED, EXPIRED), EXPIRED.reason),
        ((NO, LIMITED, AWAY, EXPIRED), EXPIRED.reason),
        # what stands is told, and not what changes all the time
        ((NO, AWAY, AWAY, AWAY, EXPIRED, EXPIRED), AWAY.reason),
        ((NO, AWAY, AWAY, AWAY, EXPIRED, EXPIRED, EXPIRED), EXPIRED.reason),
        ((NO, AWAY, AWAY, AWAY, EXPIRED, AWAY, EXPIRED, AWAY), AWAY.reason),
        ((NO, EXPIRED, EXPIRED, EXPIRED, NO), ""),
    ],
)
def test_a_registry_that_refuses_for_long_is_told_beside_its_no(
    answers: tuple[Answer, ...], told: str
) -> None:
    assert since(*answers)[-1] == ("no", told)


def test_a_refusal_with_other_words_each_time_is_told_once() -> None:
    refusals = [
        Answer(found="unknown", reason=f"401: request 0f8fad5b-d9cb-469f-a165-7086772895{one:02}")
        for one in range(50)
    ]
    told = since(NO, *refusals)
    assert [words for _, words in told[:3]] == ["", "", ""]
    assert {words for _, words in told[3:]} == {refusals[2].reason}


def test_what_a_registry_answers_since_its_no_stands_behind_the_command() -> None:
    state = cluster({})
    answers = {one: replace(NO, since=EXPIRED.reason) for one in asked_for(state)}
    reason, message = condition(plan(replace(state, around=Surroundings(images=answers))))
    assert reason == "ImageMissing"
    assert message == (
        f"ubuntu22.04: no registry has {JIT} for amd64: driverforge build --select {JIT_CELL}{PUSH}; "
        "since then its registry answers: 401 Unauthorized: token expired"
    )


def test_each_architecture_has_a_pool() -> None:
    """Defect 6, where the kernels have one name."""
    state = replace(cluster({}), nodes={"a": node("a"), "b": node("b", "arm64")}, around=Surroundings())
    found = workloads(plan(state))
    selectors = [one["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/arch"] for one in found]
    assert sorted(selectors) == ["amd64", "arm64"]
    assert len({one["metadata"]["name"] for one in found}) == 2


# --- the registry


class Secrets:
    """Satisfies `ports.Reader`, with pull secrets alone."""

    def __init__(self, **logins: Login) -> None:
        self._items = tuple(
            {"metadata": {"name": name}, "data": {".dockerconfigjson": _encoded(login)}}
            for name, login in logins.items()
        )

    def pages(self, kind: Kind[Any], *, labels: str = "") -> Iterator[Page[Any]]:
        assert kind.name == "Secret"
        yield Page(items=self._items, version="")


def _encoded(login: Login) -> str:
    pair = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    return base64.b64encode(json.dumps({"auths": {HOST: {"auth": pair}}}).encode()).decode()


def registry(*arches: str, **settings: Any) -> MemoryRegistry:
    """A registry with the image JIT for these architectures."""
    found = MemoryRegistry(**settings)
    manifests = []
    for arch in arches:
        data = json.dumps({"architecture": arch}).encode()
        config = {"mediaType": "c", "digest": found.add_blob("nvidia/driver", data), "size": len(data)}
        document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []}
        digest = found.add_manifest("nvidia/driver", "", OCI_MANIFEST, document)
        platform = {"os": "linux", "architecture": arch}
        manifests.append({"mediaType": OCI_MANIFEST, "digest": digest, "size": 1, "platform": platform})
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
    found.add_manifest("nvidia/driver", JIT.rpartition(":")[2], OCI_INDEX, index)
    return found


def ask(found: MemoryRegistry, question: Question, **logins: Login) -> str:
    registries = ImageRegistries(Secrets(**logins), found)
    return registries.ask(question).found


@pytest.mark.parametrize(
    ("image", "arch", "answer"),
    [(JIT, "amd64", "yes"), (JIT, "", "yes"), (JIT, "arm64", "no"), (NEWER, "amd64", "no")],
)
def test_what_a_registry_has(image: str, arch: str, answer: str) -> None:
    assert ask(registry("amd64"), Question(image=image, arch=arch)) == answer


def test_pull_secrets_are_shown() -> None:
    login = Login(user="ci", password="secret")
    closed = registry("amd64", auth="basic", login=login)
    assert ask(closed, Question(image=JIT, arch="amd64")) == "unknown"
    assert ask(closed, Question(image=JIT, arch="amd64", secrets=("pull",)), pull=login) == "yes"
    assert ask(closed, Question(image=JIT, arch="amd64", secrets=("gone",)), pull=login) == "unknown"


def test_what_is_missing_is_asked_for_again() -> None:
    answers = [Answer(found="no"), Answer(found="yes")]

    class Registries:
        def ask(self, question: Question) -> Answer:
            return answers.pop(0)

    hurried = Lookups(Registries(), clock=lambda: time.monotonic() * 1000, rest=0.01)
    lookups, stop = hurried, threading.Event()
    question = Question(image=JIT, arch="amd64")
    lookups.want({question})
    thread = threading.Thread(target=lookups.run, args=(stop,))
    thread.start()
    told: list[tuple[Question, Answer]] = []

    def both() -> bool:
        told.extend(lookups.answers())
        return len(told) >= 2

    until(both, "two answers")
    stop.set()
    thread.join()
    assert [answer.found for _, answer in told] == ["no", "yes"]
    # what is there is asked for once
    assert answers == []


def test_a_plan_asks_for_what_it_needs() -> None:
    """The image of a node that compiles is a question that the first answer raises."""
    asked: list[str] = []

    class Registries:
        def ask(self, question: Question) -> Answer:
            asked.append(question.image)
            return Answer(found="yes" if question.image == JIT else "no")

    allowed = {nodekeys.JIT_VERSION: "580.95.05"}
    state = cluster({}, annotations=allowed, usePrecompiled=True, version="580")
    assert images(plan(looked_up(state, Registries()))) == [JIT]
    assert asked == [PRECOMPILED, JIT]
