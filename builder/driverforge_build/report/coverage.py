"""What a plan covers, as people ask for it: for each kernel and driver whether there is an image.

A plan says what is to be done. Whether an image can be pulled today is told by more documents: covered.json
has images of earlier pipelines too, which serve their nodes until newer ones are made.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from driverforge_build.advice import Given
from driverforge_build.documents.images import BuildCell
from driverforge_build.documents.plans import PinnedBase, PinnedPackage, PinnedSuite, PlanCell, PlanDocument
from driverforge_build.documents.proofs import VerifiedCell
from driverforge_build.documents.runs import CoveredImage


class Status(Enum):
    """What somebody who needs the image of a cell finds."""

    READY = "image"
    OLDER = "older image"
    DUE = "to build"
    FAILED = "failed"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


class Proof(Enum):
    """Whether an image passed a test: its kernel was booted, its modules were inserted."""

    PASSED = "passed"
    FAILED = "failed"
    NONE = "none is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image in the registry. `reference` is its immutable tag, `tag` the moving one, '' where not known.

    `told` is what the proof says: what ran the kernel, or what went wrong.
    """

    reference: str
    digest: str
    tag: str = ""
    proof: Proof = Proof.NONE
    told: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One cell. `reason` is a sentence, `run` a command that goes on from there, `hint` what to know then."""

    cell: str
    driver: str
    status: Status
    reason: str
    image: Image | None = None
    run: str = ""
    hint: str = ""
    source: str = ""
    module_types: Sequence[str] = ()
    evidence: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kernel release, '' for images that compile on the node; `entries` by driver version.

    `alike` are the others of its class.
    """

    kernel: str
    packages: Sequence[PinnedPackage]
    entries: Mapping[str, Entry]
    alike: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """An OS and architecture: the newest kernel first, drivers by version."""

    os: str
    arch: str
    name: str
    drivers: Sequence[str]
    rows: Sequence[Row]
    suites: Sequence[PinnedSuite] = ()
    base: PinnedBase | None = None

    @property
    def read(self) -> str:
        """The date of its newest repository, ISO 8601, '' without one."""
        return max((suite["date"] for suite in self.suites), default="")

    @property
    def count(self) -> Counter[Status]:
        return Counter(entry.status for row in self.rows for entry in row.entries.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """`made` is when the plan was, ISO 8601."""

    made: str
    groups: Sequence[Group]

    @property
    def count(self) -> Counter[Status]:
        return sum((group.count for group in self.groups), Counter())

    @property
    def images(self) -> int:
        """How many images the registry has, whatever became of their tests."""
        rows = (row for group in self.groups for row in group.rows)
        return sum(entry.image is not None for row in rows for entry in row.entries.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What is known: one plan, the images of covered.json by kernel, what `build` and `verify` reported."""

    plan: PlanDocument
    covered: Mapping[str, Sequence[CoveredImage]] = field(default_factory=dict)
    built: Mapping[str, BuildCell] = field(default_factory=dict)
    verified: Mapping[str, VerifiedCell] = field(default_factory=dict)


def coverage(known: Documents) -> Coverage:
    """Every cell of the plan, and every covered kernel that the plan does not have any more."""
    covered = {(kernel, image["cell"]): image for kernel, images in known.covered.items() for image in images}
    by_target: dict[tuple[str, str], dict[str, dict[str, Entry]]] = {}
    for cell in known.plan["cells"]:
        kernel = cell["kernel"] or ""
        entry = _entry(cell, covered.pop((kernel, cell["cell"]), None), known)
        _put(by_target, cell["os"], cell["arch"], kernel, entry)
    for (kernel, _), image in covered.items():
        _put(by_target, image["os"], image["arch"], kernel, _kept(image, known.verified))
    return Coverage(
        made=known.plan["made"],
        groups=[_group(os, arch, rows, known.plan) for (os, arch), rows in by_target.items()],
    )


def _put(
    into: dict[tuple[str, str], dict[str, dict[str, Entry]]], os: str, arch: str, kernel: str, entry: Entry
) -> None:
    into.setdefault((os, arch), {}).setdefault(kernel, {})[entry.driver] = entry


def _group(os: str, arch: str, rows: Mapping[str, Mapping[str, Entry]], plan: PlanDocument) -> Group:
    target = plan["targets"].get(f"{os}-{arch}")
    packages = target["kernels"] if target else {}
    classes = (
        {kernel: one["kernels"] for one in target["classes"] for kernel in one["kernels"]} if target else {}
    )
    drivers = {driver for entries in rows.values() for driver in entries}
    return Group(
        os=os,
        arch=arch,
        name=target["name"] if target else os,
        drivers=sorted(drivers, key=_by_number),
        rows=[
            Row(
                kernel=kernel,
                packages=packages.get(kernel, ()),
                entries=rows[kernel],
                alike=[other for other in classes.get(kernel, ()) if other != kernel],
            )
            for kernel in _newest_first(rows)
        ],
        suites=target["suites"] if target else (),
        base=target["base"] if target else None,
    )


def _newest_first(kernels: Iterable[str]) -> list[str]:
    """What compiles on the node fits any kernel, and comes first."""
    return sorted(kernels, key=lambda kernel: (not kernel, _by_number(kernel)), reverse=True)


def _by_number(text: str) -> list[tuple[bool, int, str]]:
    """A key that sorts '6.1.9' before '6.1.10', whatever else is in the text."""
    parts = ((part.isdecimal(), part.lstrip("0")) for part in re.split(r"([0-9]+)", text))
    return [(number, len(part) if number else 0, part) for number, part in parts]


def _entry(cell: PlanCell, covered: CoveredImage | None, known: Documents) -> Entry:
    built = known.built.get(cell["cell"])
    image = _proven(_current(cell, covered, built) or _covered(covered), known.verified.get(cell["cell"]))
    status, reason = _judge(cell, image, built)
    run, hint = _next(cell, status, known.plan)
    return Entry(
        cell=cell["cell"],
        driver=cell["driver"],
        status=status,
        reason=reason,
        image=image,
        run=run,
        hint=hint,
        source=cell["source"],
        module_types=cell["module_types"],
        evidence=[*cell["evidence"], *cell["packages"]],
        warnings=cell["warnings"],
    )


def _kept(image: CoveredImage, verified: Mapping[str, VerifiedCell]) -> Entry:
    return Entry(
        cell=image["cell"],
        driver=image["driver"],
        status=Status.OLDER,
        reason="the plan does not have this cell any more",
        image=_proven(_covered(image), verified.get(image["cell"])),
    )


def _current(cell: PlanCell, covered: CoveredImage | None, built: BuildCell | None) -> Image | None:
    """The image that was made from the plan's inputs, which its immutable tag is made from too.

    A plan that asked no registry does not know that tag.
    """
    pushed = built["pushed"] if built else None
    if pushed and cell["image"] in ("", pushed["reference"]):
        tag = "" if pushed["waiting"] else pushed["alias"]
        return Image(reference=pushed["reference"], tag=tag, digest=pushed["digest"])
    if covered and covered["image"] == cell["image"]:
        return _covered(covered)
    if cell["verdict"] == "exists":
        return Image(reference=cell["image"], digest=cell["digest"])
    return None


def _covered(covered: CoveredImage | None) -> Image | None:
    if covered is None:
        return None
    return Image(
        reference=covered["image"],
        tag=covered["tag"],
        digest=covered["digest"],
        proof=Proof.PASSED if covered["tested"] else Proof.NONE,
    )


def _judge(cell: PlanCell, image: Image | None, built: BuildCell | None) -> tuple[Status, str]:
    """The status, and why: a plan's reason is the matrix's or the lock's, a build's what went wrong."""
    error = built["error"] if built else None
    reason = f"the build failed: {error['brief']}" if error else cell["reason"]
    to_build = cell["verdict"] == "build"
    if image and image.proof is Proof.FAILED:
        return Status.FAILED, f"its boot test failed: {image.told}"
    if image and (image.reference == cell["image"] or (to_build and not cell["image"])):
        return Status.READY, reason if to_build else ""
    if image and to_build and not error:
        return Status.OLDER, "made from other inputs than those of now: a new one is due"
    if image:
        return Status.OLDER, f"there is no newer one: {reason}"
    if error:
        return Status.FAILED, reason
    return {"blocked": Status.BLOCKED, "unknown": Status.UNKNOWN}.get(cell["verdict"], Status.DUE), reason


def _proven(image: Image | None, verified: VerifiedCell | None) -> Image | None:
    """With what `verify` found, where that was about this very image: the engine's has the same tag."""
    if image is None or verified is None or _tag(verified["reference"]) != _tag(image.reference):
        return image
    if verified["result"] == "passed":
        return replace(image, proof=Proof.PASSED, told=verified["machine"])
    broken = (f"{check['module']}: {check['reason']}" for check in verified["checks"] if not check["passed"])
    return replace(image, proof=Proof.FAILED, told=next(broken, ""))


def _tag(reference: str) -> str:
    return reference.rpartition(":")[2]


def _next(cell: PlanCell, status: Status, plan: PlanDocument) -> tuple[str, str]:
    """The command that does something about a status, or that shows the evidence; and what to know of it."""
    inputs = plan["inputs"]
    given = Given(
        matrix=Path(inputs["matrix"]) if inputs["matrix"] is not None else None,
        lock=Path(inputs["lock"]),
        # `build` refuses a base image for an OS that it is not to build
        bases={os: base for os, base in inputs["bases"].items() if os == cell["os"]},
    )
    if cell["verdict"] == "unknown":
        # a plan may give advice in its place, and explains a command behind three blanks
        command, _, hint = cell["run"].partition("   ")
        return (command, hint.strip("()")) if command.startswith("driverforge ") else ("", cell["run"])
    if cell["verdict"] == "blocked":
        return shlex.join(["driverforge", "explain", *given.options, cell["cell"]]), ""
    return "" if status is Status.READY else given.command("build", select=(cell["cell"],)), ""
