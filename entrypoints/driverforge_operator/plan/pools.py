"""The objects of pools: nodes that get the same driver."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from driverforge_core import nodekeys
from driverforge_core.cell import build_command, cell_of_image
from driverforge_operator.crd.blocks import DriverManager, Image, SideCar
from driverforge_operator.crd.nvidiadriver import NvidiaDriverSpec
from driverforge_operator.operands import objectnames
from driverforge_operator.operands.configuration import configuration
from driverforge_operator.operands.driver import DriverPool, driver_objects, startup_probe
from driverforge_operator.operands.manifest import Manifest, image_name, image_of, owner_of
from driverforge_operator.operands.openshiftfit import OpenShift
from driverforge_operator.operands.policydriver import as_driver, host_root
from driverforge_operator.plan.intent import Intent
from driverforge_operator.plan.placement import Census, PoolKey
from driverforge_operator.plan.removals import owners
from driverforge_operator.ports import Answer, Document, Question
from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER
from driverforge_operator.state.surroundings import OpenShiftCluster, Surroundings

_DROPS_MINOR = ("rhel", "rocky", "ol")
_FIRST_ARCH = "amd64"
"""Whose pools have the names that NVIDIA's operator gives, which knows no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool's driver, or why its objects stay as they are: a condition's reason, and the words.

    `uid` is of the resource that asks for it. A reason without words is nothing to tell: soon known.
    `questions` are what a registry is asked before anything changes. `instead` says which image is
    missing where nodes compile instead.
    """

    key: PoolKey
    uid: str
    driver: DriverPool
    reason: str = ""
    message: str = ""
    questions: tuple[Question, ...] = ()
    instead: str = ""

    @property
    def documents(self) -> list[Document]:
        """What shall be there, [] where that is not decided."""
        return [] if self.reason else [*driver_objects(self.driver)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asker:
    """The resource that asks for a pool. `toolkit`: OpenShift's driver toolkit may compile for it."""

    name: str
    uid: str
    owner: Manifest
    spec: NvidiaDriverSpec
    jit_version: str
    toolkit: bool = True


def pools(intent: Intent, census: Census, around: Surroundings) -> list[Pool]:
    """All pools, in an order that stays."""
    keys = {placement.pool for placement in census if placement.pool}
    return [found for key in sorted(keys, key=str) if (found := pool(key, intent, around))]


def questions(intent: Intent, census: Census, around: Surroundings) -> frozenset[Question]:
    """What registries are to be asked."""
    return frozenset(one for found in pools(intent, census, around) for one in found.questions)


def pool(key: PoolKey, intent: Intent, around: Surroundings) -> Pool | None:
    """The driver of nodes that are alike; None where nobody says which."""
    asker = _asker(key, intent)
    if asker is None:
        return None
    found = _pool(key, asker, intent, around, precompiled=bool(key.kernel))
    if found.reason == "ImageMissing" and key.kernel and asker.jit_version:
        # its nodes compile, until somebody has made the image
        spec = asker.spec.model_copy(update={"version": asker.jit_version})
        compiled = _pool(key, replace(asker, spec=spec), intent, around, precompiled=False)
        return _fall_back(found, compiled)
    return found


def _fall_back(missing: Pool, compiled: Pool) -> Pool:
    """The pool that compiles, and what is told of the image that it has not."""
    questions = missing.questions + compiled.questions
    if compiled.message:
        told = f"{missing.message}; nodes could compile instead, but {compiled.message}"
        return replace(compiled, questions=questions, message=told)
    return replace(compiled, questions=questions, instead=f"nodes compile, since {missing.message}")


def shared(intent: Intent, found: Collection[Pool]) -> list[Document]:
    """The objects that all pools use, and none owns."""
    return [*startup_probe(intent.namespace)] if found else []


def undecided(intent: Intent, census: Census, found: Collection[Pool]) -> frozenset[str]:
    """The uids of resources of which nobody can say now what they want: nothing of theirs is taken away.

    Their spec has problems, another one claims a node too, a node has lost the labels of its system, as while
    Node Feature Discovery restarts, or an image or ConfigMap of theirs is missing.
    """
    unclear = {name for placement in census if placement.pool is None for name in placement.claims}
    uids = {one.uid for one in intent.drivers if one.spec is None or one.name in unclear}
    uids |= {one.uid for one in found if one.reason}
    policy = intent.policy
    unplaced = not intent.drivers_by_resource and any(one.told for one in census)
    if policy and (policy.spec is None or unplaced):
        uids.add(policy.uid)
    return frozenset(uids)


def stays(document: Document, unclear: Collection[str]) -> bool:
    """Whether an object is left alone though nobody wants it: `unclear` are uids from `undecided`.

    What has no owner serves all.
    """
    its = owners(document)
    return bool(its.intersection(unclear) if its else unclear)


def _asker(key: PoolKey, intent: Intent) -> _Asker | None:
    if key.driver:
        found = intent.driver.get(key.driver)
        if found is None or found.spec is None:
            return None
        owner = owner_of(NVIDIA_DRIVER, found.name, found.uid)
        spec = found.spec
        return _Asker(name=found.name, uid=found.uid, owner=owner, spec=spec, jit_version=found.jit_version)
    policy = intent.policy
    if policy is None or policy.spec is None:
        return None
    owner = owner_of(CLUSTER_POLICY, policy.name, policy.uid)
    spec = as_driver(policy.spec)
    return _Asker(
        name="",
        uid=policy.uid,
        owner=owner,
        spec=spec,
        jit_version=policy.jit_version,
        toolkit=policy.spec.operator.use_ocp_driver_toolkit is not False,
    )


def _pool(key: PoolKey, asker: _Asker, intent: Intent, around: Surroundings, *, precompiled: bool) -> Pool:
    spec, whole = _named(asker.spec, around.environment), not asker.name
    arch = key.arch if key.arch != _FIRST_ARCH else ""
    apart = (key.kernel or key.rhcos, arch)
    driver = DriverPool(
        namespace=intent.namespace,
        name=objectnames.policy_daemonset(key.os, *apart)
        if whole
        else objectnames.driver_daemonset(spec.driver_type, key.os, asker.uid, *apart),
        account="nvidia-driver"
        if whole
        else objectnames.driver_account(spec.driver_type, asker.name, key.os),
        owner=asker.owner,
        os=key.os,
        kernel=key.kernel,
        precompiled=precompiled,
        selector=_selector(key, spec),
        spec=spec,
        whole=whole,
        host_root=host_root(intent.policy.spec if intent.policy else None),
        openshift=_openshift(around.openshift, key.rhcos, toolkit=asker.toolkit and not precompiled),
        contents=around.contents,
        ready_taint=intent.ready_taint,
    )
    found = Pool(key=key, uid=asker.uid, driver=driver)
    if told := problems(driver):
        return replace(found, reason="InvalidSpec", message=told)
    try:
        mounts = configuration(
            spec,
            key.os,
            precompiled=precompiled,
            subscribed=around.openshift is None,
            contents=around.contents,
        )
    except LookupError as error:
        return replace(found, reason="ConfigurationMissing", message=str(error.args[0]))
    return _looked_up(replace(found, driver=replace(driver, mounts=mounts)), around)


def _named(spec: NvidiaDriverSpec, environment: Mapping[str, str]) -> NvidiaDriverSpec:
    """A spec whose images, where it names none, are those of the operator's environment."""
    found: dict[str, object] = {}
    for field, part, variable in (
        ("", spec, "DRIVER_IMAGE"),
        ("manager", spec.manager or DriverManager(), "DRIVER_MANAGER_IMAGE"),
        ("gds", spec.gds, "GDS_IMAGE"),
        ("gdrcopy", spec.gdrcopy, "GDRCOPY_IMAGE"),
    ):
        name = environment.get(variable)
        if name and part and not image_name(part):
            fields = image_of(name)
            found |= {field: part.model_copy(update=fields)} if field else fields
    return spec.model_copy(update=found)


def _looked_up(found: Pool, around: Surroundings) -> Pool:
    """The pool, as far as registries let it."""
    driver, images = found.driver, around.images
    asked = tuple(
        Question(image=image, arch=found.key.arch, secrets=driver.pull_secrets) for image in driver.images
    )
    found = replace(found, questions=asked)
    if images is None:
        return found
    answers = {one.image: images.get(one) for one in asked}
    if missing := {image: answer for image, answer in answers.items() if answer and answer.found == "no"}:
        return replace(found, reason="ImageMissing", message=_missing(found, missing))
    # what a registry does not tell is the nodes' to find out: they may have other ways and rights
    return replace(found, reason="ImageNotAskedFor") if None in answers.values() else found


def _missing(found: Pool, images: Mapping[str, Answer]) -> str:
    """Which image is not there, the command that makes ours, and what its registry says since."""
    driver, told = found.driver, f"no registry has {' and '.join(images)}"
    if found.key.arch:
        told += f" for {found.key.arch}"
    # the matrix has no drivers of virtual GPUs
    cell = cell_of_image(driver.image, found.key.arch) if driver.spec.driver_type == "gpu" else ""
    if driver.image in images and cell:
        told += f": {build_command(driver.image, cell)}"
    since = next(filter(None, (one.since for one in images.values())), "")
    return f"{told}; since then its registry answers: {since}" if since else told


def _selector(key: PoolKey, spec: NvidiaDriverSpec) -> Mapping[str, str]:
    version = nodekeys.OS_MAJOR if key.os.id in _DROPS_MINOR else nodekeys.OS_VERSION
    return {
        **({nodekeys.DRIVER_OWNER: key.driver} if key.driver else {}),
        nodekeys.OS_ID: key.os.id,
        version: key.os.version,
        **({nodekeys.KERNEL: key.kernel} if key.kernel else {}),
        **({nodekeys.ARCH: key.arch} if key.arch else {}),
        **({nodekeys.OSTREE_VERSION: key.rhcos} if key.rhcos else {}),
        **(spec.node_selector or {}),
    }


def _openshift(cluster: OpenShiftCluster | None, rhcos: str, *, toolkit: bool) -> OpenShift | None:
    if cluster is None:
        return None
    if not (toolkit and cluster.toolkit_images):
        return OpenShift(version=cluster.version)
    return OpenShift(
        version=cluster.version,
        toolkit=True,
        rhcos=rhcos,
        toolkit_image=cluster.toolkit_images.get(rhcos, ""),
        http_proxy=cluster.http_proxy,
        https_proxy=cluster.https_proxy,
        no_proxy=cluster.no_proxy,
        authorities=cluster.authorities,
    )


_OPEN_ONLY = (2, 17, 5)
"""From this version on GDS' module uses symbols that the open kernel modules alone export."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def problems(driver: DriverPool) -> str:
    """All that is wrong, each with the field's path and what to write; '' for nothing."""
    return "; ".join(_problems(driver))


def _problems(driver: DriverPool) -> Iterator[str]:
    spec, path = driver.spec, "spec.driver" if driver.whole else "spec"
    if spec.default and spec.node_selector:
        yield "spec.default: it is for nodes that no other claims: leave out nodeSelector, or default"
    if nodekeys.DRIVER_OWNER in (spec.node_selector or {}):
        yield f"spec.nodeSelector: the operator writes {nodekeys.DRIVER_OWNER}; use another label"
    if driver.precompiled and (spec.version or "").startswith("sha256:"):
        yield f"{path}.version: a digest names one kernel's image: write the driver's branch, e.g. '580'"
    cars = {name: car for name, car in (("gds", spec.gds), ("gdrcopy", spec.gdrcopy)) if car and car.enabled}
    if driver.precompiled and cars:
        them = " and no ".join(cars)
        yield f"{path}.usePrecompiled: precompiled drivers have no {them}: leave out usePrecompiled or those"
    if "gds" in cars and spec.kernel_module_type != "open" and (version := _open_only(cars["gds"])):
        yield f"{path}.kernelModuleType: write open: GDS {version} works with the open kernel modules only"
    named = {path: driver.image, f"{path}.manager": image_name(spec.manager or Image())}
    named |= {f"spec.{field}": image_name(car) for field, car in cars.items()}
    if missing := [field for field, image in named.items() if not image]:
        yield f"{', '.join(missing)}: name the image: repository, image and version, or all of it in image"


def _open_only(gds: SideCar) -> str:
    """The version of a GDS that works with the open modules only; '' for others, and where none is told."""
    version = gds.version or ""
    if version.startswith("sha256:"):
        return version  # nobody can say, and releases of today do
    found = _VERSION.match(version)
    return version if found and tuple(int(part or 0) for part in found.groups()) >= _OPEN_ONLY else ""
