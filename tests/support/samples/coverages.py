"""A pipeline's documents as the commands print them: the shipped matrix's own plan, and what goes with it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timezone

from driverforge_build.advice import Given
from driverforge_build.documents.images import BuildCell
from driverforge_build.documents.plans import PlanDocument
from driverforge_build.documents.proofs import VerifiedCell
from driverforge_build.documents.runs import CoveredImage
from driverforge_build.lock.pins import HeaderFact, Lock, TargetLock
from driverforge_build.matrix import Cell, Matrix, load_matrix
from driverforge_build.matrix.probes import probe_rule, question
from driverforge_build.plan.rows import all_cells, make_plan
from driverforge_build.plan.text import json_lines
from driverforge_build.verdict.decide import Judge
from driverforge_oci.presence import Absent, Presence, Present
from support.samples.synthetic import synthetic_lock

NODE = "6.1.0-50-cloud-amd64"
READY = f"debian12-amd64-535.261.03-{NODE}"
MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
REPOSITORY = "registry.site/nvidia/driver"


def image_of(cell: str, revision: str = "r1") -> str:
    return f"{REPOSITORY}:{cell.replace('+', '_')}-{revision}"


def digest_of(cell: str) -> str:
    return f"sha256:{sum(cell.encode()):064x}"


def shipped_plan(*, there: Collection[str] = (), asked: bool = True, kernels: int = 0) -> PlanDocument:
    """The shipped matrix's plan, as `plan --json` prints it, with one kernel of each series.

    The registry has the images of `there`, unless it was not asked. So many more `kernels` of debian12.
    """
    matrix = load_matrix()
    lock = _lock(matrix, kernels)

    def look_up(cell: Cell) -> tuple[str, Presence]:
        return image_of(cell.key), Present(digest_of(cell.key)) if cell.key in there else Absent()

    judge = Judge(matrix, lock, today=MADE.date())
    plan = make_plan(all_cells(matrix, lock), judge, look_up if asked else None)
    document: PlanDocument = json.loads("\n".join(json_lines(plan, lock, given=Given(), made=MADE)))
    return document


def _lock(matrix: Matrix, kernels: int) -> Lock:
    """The synthetic lock with more kernels, and an answer to each probe: headers of 7.2 break drivers."""
    lock = synthetic_lock(matrix)
    debian = lock.targets["debian12-amd64"]
    like = debian.kernels[NODE]
    more = (f"6.1.0-{number}-cloud-amd64" for number in range(1000, 1000 + kernels))
    known = {**debian.kernels, **{release: replace(like, release=release) for release in more}}
    questions = [question(probe_rule(row).probe) for row in matrix.probes]
    return lock.with_targets(
        replace(target, header_facts=_facts(target, questions))
        for target in {**lock.targets, debian.key: replace(debian, kernels=known)}.values()
    )


def _facts(target: TargetLock, questions: list[str]) -> dict[str, dict[str, HeaderFact]]:
    return {
        package.key: dict.fromkeys(
            questions, HeaderFact(breaks="7.2" in kernel.release, found="include/linux/pci.h:9: int f();")
        )
        for kernel in target.kernels.values()
        for package in kernel.headers
    }


def covered_image(cell: str, *, revision: str = "r1", tested: bool = False) -> CoveredImage:
    os, arch, driver, kernel = cell.split("-", 3)
    branch = driver.partition(".")[0]
    return {
        "os": os,
        "arch": arch,
        "driver": driver,
        "branch": branch,
        "cell": cell,
        "tag": f"{REPOSITORY}:{branch}-{kernel.replace('+', '_')}-{os}",
        "image": image_of(cell, revision),
        "digest": digest_of(cell),
        "tested": tested,
    }


def failed_build(cell: str, brief: str = "docker buildx exited with 1") -> BuildCell:
    return {
        "cell": cell,
        "verdict": "build",
        "reason": "",
        "inputs": None,
        "reference": None,
        "result": "failed",
        "seconds": 1.0,
        "attempts": [],
        "log": None,
        "id": None,
        "size": None,
        "layers": [],
        "pushed": None,
        "error": {"brief": brief, "details": [], "resolution": "", "exit_status": 70},
    }


def verified_cell(cell: str, *, reason: str = "", revision: str = "r1") -> VerifiedCell:
    """A boot proof; it failed where there is a reason."""
    return {
        "cell": cell,
        "result": "failed" if reason else "passed",
        "seconds": 9.0,
        "reference": f"localhost/driver:{image_of(cell, revision).rpartition(':')[2]}",
        "image": "sha256:1",
        "kernel": cell.split("-", 3)[3],
        "machine": "QEMU 7.2.22, TCG",
        "packages": [],
        "modules": [],
        "checks": [
            {
                "module": "nvidia.ko",
                "kind": "insert",
                "outcome": "refused" if reason else "as described",
                "passed": not reason,
                "reason": reason,
                "log": [],
            }
        ],
        "error": None,
        "attached": None,
        "not_attached": None,
    }
