"""Which images there are: what a plan, covered.json, builds and boot proofs say together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from driverforge_build.documents.images import BuildCell
from driverforge_build.documents.plans import PlanDocument
from driverforge_build.report.coverage import Documents, Entry, Group, Image, Proof, Status, coverage
from driverforge_build.report.printed import read_documents
from driverforge_core.errors import InputError, UsageError
from support.samples.coverages import (
    NODE,
    READY,
    covered_image,
    digest_of,
    failed_build,
    image_of,
    shipped_plan,
    verified_cell,
)

JIT = "debian12-amd64-535.261.03-jit"
PLAN = Documents(plan=shipped_plan())
UNASKED = Documents(plan=shipped_plan(asked=False))
THERE = Documents(plan=shipped_plan(there=[READY, JIT]))


def entries(known: Documents) -> dict[str, Entry]:
    rows = (row for group in coverage(known).groups for row in group.rows)
    return {entry.cell: entry for row in rows for entry in row.entries.values()}


def group(known: Documents, key: str = "debian12-amd64") -> Group:
    (found,) = [one for one in coverage(known).groups if f"{one.os}-{one.arch}" == key]
    return found


def covered(known: Documents, cell: str = READY, revision: str = "r1", tested: bool = False) -> Documents:
    image = covered_image(cell, revision=revision, tested=tested)
    return replace(known, covered={cell.split("-", 3)[3]: [image]})


def test_every_cell_of_a_plan_is_there_once() -> None:
    assert sorted(entries(PLAN)) == sorted(cell["cell"] for cell in PLAN.plan["cells"])
    assert coverage(PLAN).count.total() == len(PLAN.plan["cells"])


def test_a_group_has_what_the_lock_has() -> None:
    found = group(PLAN)
    assert found.name == "Debian 12 (bookworm)"
    assert found.read == "2026-01-01T00:00:00Z"
    assert replace(found, suites=()).read == ""
    assert [one["suite"] for one in found.suites] == ["bookworm"]
    (row,) = [row for row in found.rows if row.kernel == NODE]
    assert [package["name"] for package in row.packages] == [f"linux-headers-{NODE}", f"linux-image-{NODE}"]


def test_the_newest_kernel_comes_first_below_what_compiles_on_the_node() -> None:
    known = PLAN
    for kernel in ("6.1.0-08-cloud-amd64", "6.1.0-9-cloud-amd64", "6.1.0-100-cloud-amd64"):
        more = covered(PLAN, f"debian12-amd64-535.261.03-{kernel}").covered
        known = replace(known, covered={**known.covered, **more})
    kernels = [row.kernel for row in group(known).rows]
    assert kernels[0] == ""
    assert kernels[2:] == ["6.1.0-100-cloud-amd64", NODE, "6.1.0-9-cloud-amd64", "6.1.0-08-cloud-amd64"]


def test_drivers_come_by_version() -> None:
    drivers = [entry for entry in group(PLAN).drivers if entry[:3] in ("470", "535", "615")]
    assert drivers == ["470.256.02", "535.261.03", "615.71.09"]


def test_an_image_that_the_registry_has() -> None:
    for cell in (READY, JIT):
        entry = entries(THERE)[cell]
        assert entry.status is Status.READY
        assert entry.image == Image(reference=image_of(cell), digest=digest_of(cell))
        assert (entry.run, entry.reason) == ("", "")


def test_covered_kernels_tell_the_tag_and_the_test_of_an_image() -> None:
    for known in (PLAN, THERE, UNASKED):
        entry = entries(covered(known, tested=True))[READY]
        assert entry.status is Status.READY
        assert entry.image
        assert entry.image.tag == f"registry.site/nvidia/driver:535-{NODE}-debian12"
        assert entry.image.proof is Proof.PASSED


def test_an_image_of_other_inputs_serves_until_there_is_a_new_one() -> None:
    entry = entries(covered(PLAN, revision="r0"))[READY]
    assert entry.status is Status.OLDER
    assert entry.image
    assert entry.image.reference == image_of(READY, "r0")
    assert entry.run == f"driverforge build --select {READY}"


def test_an_image_that_no_plan_has_any_more_is_still_told() -> None:
    gone = "debian12-amd64-535.247.01-6.1.0-41-cloud-amd64"
    entry = entries(covered(PLAN, gone))[gone]
    assert (entry.status, entry.reason) == (Status.OLDER, "the plan does not have this cell any more")
    other = "gentoo1-amd64-535.247.01-6.1.0-41"
    assert group(covered(PLAN, other), "gentoo1-amd64").name == "gentoo1"


def test_a_failed_build_is_told_and_an_older_image_with_it() -> None:
    built = {READY: failed_build(READY)}
    entry = entries(replace(PLAN, built=built))[READY]
    assert (entry.status, entry.image) == (Status.FAILED, None)
    assert entry.reason == "the build failed: docker buildx exited with 1"
    entry = entries(replace(covered(PLAN, revision="r0"), built=built))[READY]
    assert entry.status is Status.OLDER
    assert entry.reason == "there is no newer one: the build failed: docker buildx exited with 1"


def pushed_build(revision: str = "r1", waiting: str = "") -> dict[str, BuildCell]:
    built = failed_build(READY)
    built.update(result="built", error=None)
    built["pushed"] = {
        "cell": READY,
        "reference": image_of(READY, revision),
        "digest": "sha256:5",
        "sent": True,
        "alias": "registry.site/nvidia/driver:535",
        "alias_digest": "sha256:6",
        "moved": True,
        "waiting": waiting,
    }
    return {READY: built}


def test_a_build_that_pushed_needs_no_second_plan() -> None:
    for known in (PLAN, UNASKED):
        entry = entries(replace(known, built=pushed_build()))[READY]
        assert entry.status is Status.READY
        assert entry.image == Image(
            reference=image_of(READY), digest="sha256:5", tag="registry.site/nvidia/driver:535"
        )


def test_an_alias_that_stands_for_another_image_is_not_the_one_to_pull() -> None:
    image = entries(replace(PLAN, built=pushed_build(waiting="two drivers")))[READY].image
    assert image
    assert image.tag == ""


def test_what_the_plan_found_counts_more_than_what_was_there_before() -> None:
    before = (covered(THERE, revision="r0"), replace(THERE, built=pushed_build("r0")))
    for known in before:
        entry = entries(known)[READY]
        assert entry.status is Status.READY
        assert entry.image == Image(reference=image_of(READY), digest=digest_of(READY))


def test_a_boot_proof_counts_for_the_very_image() -> None:
    passed = entries(replace(THERE, verified={READY: verified_cell(READY)}))[READY].image
    assert passed
    assert (passed.proof, passed.told) == (Proof.PASSED, "QEMU 7.2.22, TCG")
    other = entries(replace(THERE, verified={READY: verified_cell(READY, revision="r0")}))[READY].image
    assert other
    assert other.proof is Proof.NONE


def test_an_image_that_does_not_boot_is_no_image_to_pull() -> None:
    proof = verified_cell(READY, reason="unknown symbol drm_gem_object_put")
    entry = entries(replace(THERE, verified={READY: proof}))[READY]
    assert entry.status is Status.FAILED
    assert entry.reason == "its boot test failed: nvidia.ko: unknown symbol drm_gem_object_put"
    assert coverage(replace(THERE, verified={READY: proof})).images == 2


def test_what_is_unknown_says_what_to_run() -> None:
    entry = next(entry for entry in entries(PLAN).values() if "is not pinned" in entry.reason)
    assert entry.status is Status.UNKNOWN
    assert entry.run.endswith("-*'")
    assert entry.hint.startswith("asks NVIDIA for its sha256")


def test_advice_that_is_no_command_is_not_shown_as_one() -> None:
    plan: PlanDocument = json.loads(json.dumps(PLAN.plan))
    cell = next(cell for cell in plan["cells"] if cell["cell"] == READY)
    cell.update(verdict="unknown", run="log in to the registry")
    entry = entries(Documents(plan=plan))[READY]
    assert (entry.run, entry.hint) == ("", "log in to the registry")


def test_commands_name_the_plans_own_files_and_the_systems_own_base() -> None:
    plan: PlanDocument = json.loads(json.dumps(PLAN.plan))
    bases = {"debian12": "registry.site/debian:12", "rocky9": "registry.site/rocky:9"}
    plan["inputs"] = {"matrix": "a site.yaml", "lock": "site.lock.json", "bases": bases}
    options = "--matrix 'a site.yaml' --lock site.lock.json --base debian12=registry.site/debian:12"
    assert entries(Documents(plan=plan))[READY].run == f"driverforge build {options} --select {READY}"
    next(cell for cell in plan["cells"] if cell["cell"] == READY)["verdict"] = "blocked"
    assert entries(Documents(plan=plan))[READY].run == f"driverforge explain {options} {READY}"


# -- reading ------------------------------------------------------------------------------------------------


def text(document: object) -> bytes:
    return json.dumps(document).encode()


def test_documents_are_known_by_their_keys() -> None:
    build = {
        "schema": 1,
        "engine": "docker",
        "cells": [failed_build(READY), {**failed_build(JIT), "result": None}],
    }
    known = read_documents(
        [
            ("a", text({"schema": 1, "cells": [verified_cell(READY)]})),
            ("b", text({"schema": 1, "kernels": {NODE: [covered_image(READY)]}})),
            ("c", text(build)),
            ("d", text(PLAN.plan)),
        ]
    )
    assert known.plan["cells"][0]["cell"] == PLAN.plan["cells"][0]["cell"]
    assert (list(known.covered), list(known.built), list(known.verified)) == ([NODE], [READY], [READY])


@pytest.mark.parametrize("content", [b"", text({"error": {"brief": "no engine", "exit_status": 69}})])
def test_a_job_that_ended_with_a_failure_takes_no_page_away(content: bytes) -> None:
    known = read_documents([("plan.json", text(PLAN.plan)), ("build-3.json", content)])
    assert known.built == {}
    with pytest.raises(UsageError, match="none of these documents"):
        read_documents([("plan.json", content)])


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"1",
        b'"summary"',
        b"\xff",
        b"[" * 100_000,
        b"{}",
        text({"schema": 1, "kernels": {NODE: [{**covered_image(READY), "tested": "yes"}]}}),
        b'{"cells": [{}]}',
        b'{"schema": 2, "made": "", "inputs": {}, "cells": [], "targets": {}, "summary": {}}',
    ],
)
def test_what_is_no_document_of_ours_is_named(content: bytes) -> None:
    with pytest.raises(InputError, match=r"strange\.json is no document"):
        read_documents([("strange.json", content)])


def test_a_page_is_about_one_plan() -> None:
    with pytest.raises(UsageError, match="none of these documents"):
        read_documents([("b", text({"schema": 1, "kernels": {}}))])
    with pytest.raises(UsageError, match="and 2 of these documents"):
        read_documents([("a", text(PLAN.plan)), ("b", text(PLAN.plan))])
