"""Verdicts: pure functions of matrix and lock."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from driverforge_build.advice import Given
from driverforge_build.lock.pins import HeaderFact, Lock, LockedArchive, LockedKernel, Origin, TargetLock
from driverforge_build.matrix import Cell, Matrix, jit_cells, load_matrix
from driverforge_build.plan.rows import all_cells
from driverforge_build.verdict import Judge, State, Verdict, with_presence
from driverforge_oci.presence import Absent, Present, Unknown
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import MATRIX, NEW, OLD, sample_matrix

TODAY = date(2026, 11, 21)
QUESTION = "include/linux/pci.h: arguments 4 pci_resize_resource"
FOUND = (
    "include/linux/pci.h:1383: pci_resize_resource(struct pci_dev *dev, int i, int size, int exclude_bars)"
)


def with_headers(release: str, *, version: str) -> LockedKernel:
    common = f"linux-headers-{release.removesuffix('-cloud-amd64')}-common"
    return kernel(
        release, package(f"linux-headers-{release}", version, "bookworm-security"), package(common, version)
    )


def sample_lock(**changes: object) -> Lock:
    kernels = (with_headers(OLD, version="6.1.176-1"), with_headers(NEW, version="6.1.187-1"))
    facts = {
        "linux-headers-6.1.0-50-common=6.1.176-1": {
            QUESTION: HeaderFact(breaks=False, found="include/linux/pci.h:9: x")
        },
        "linux-headers-6.1.0-53-common=6.1.187-1": {QUESTION: HeaderFact(breaks=True, found=FOUND)},
    }
    drivers = {"535.261.03": sample_driver()}
    return Lock(
        targets={"debian12-amd64": replace(target(*kernels, header_facts=facts, drivers=drivers), **changes)}
    )  # type: ignore[arg-type]


def cells(matrix: Matrix, lock: Lock) -> dict[str, Cell]:
    return {cell.key: cell for cell in all_cells(matrix, lock)}


def verdict(
    key: str, *, matrix: Matrix | None = None, lock: Lock | None = None, expand: Lock | None = None
) -> Verdict:
    """The verdict of one cell; cells are expanded from `expand` (another lock than the one that is judged
    by).
    """
    matrix, lock = matrix or sample_matrix(), lock or sample_lock()
    return Judge(matrix, lock, today=TODAY).verdict(cells(matrix, expand or lock)[key])


JIT = "debian12-amd64-535.261.03-jit"
BUILDABLE = f"debian12-amd64-535.261.03-{OLD}"
BROKEN = f"debian12-amd64-535.261.03-{NEW}"


def test_a_kernel_whose_headers_fit_is_built() -> None:
    told = verdict(BUILDABLE)
    assert (told.state, told.reason) == (State.BUILD, "headers 6.1.176-1 of bookworm-security, gcc-12")


def test_a_build_names_the_first_headers_where_no_package_is_named_after_the_kernel() -> None:
    devel = kernel(OLD, package("kernel-devel", "1.0-1", "updates"), package("kernel-headers", "2.0-1"))
    facts = {"kernel-devel=1.0-1": {QUESTION: HeaderFact(breaks=False, found="include/linux/pci.h:9: x")}}
    told = verdict(BUILDABLE, lock=sample_lock(kernels={OLD: devel}, header_facts=facts))
    assert told.reason.startswith("headers 1.0-1 of updates")


def test_a_jit_cell_is_built() -> None:
    assert verdict(JIT).state is State.BUILD


def test_headers_that_break_the_driver_block_it_with_the_line() -> None:
    told = verdict(BROKEN)
    assert (told.state, told.reason) == (State.BLOCKED, "pci_resize_resource() has four arguments")
    assert told.evidence[0] == f"linux-headers-6.1.0-53-common 6.1.187-1: {FOUND}"
    assert told.evidence[1] == "site.yaml:10: probe resize, open modules of 535"
    assert "a compiler's log" in told.evidence
    assert "the proprietary modules are not affected" in told.evidence[-1]


def test_without_the_module_type_that_breaks_the_kernel_is_built() -> None:
    exclusion = '{id: no-open, kernels: ["6.1.0-53-*"], module_types: [open], reason: r, source: s}'
    matrix = sample_matrix(MATRIX.replace("exclusions:\n", f"exclusions:\n  - {exclusion}\n"))
    assert cells(matrix, sample_lock())[BROKEN].module_types == ("proprietary",)
    assert verdict(BROKEN, matrix=matrix).state is State.BUILD


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (("before: 535.300.01", "before: 535.261.03"), State.BUILD),
        (("before: 535.300.01", "before: 535.261.04"), State.BLOCKED),
        (("arguments: 4\n", 'arguments: 4\n    since: "6.1.1"\n'), State.BUILD),
        (("arguments: 4\n", 'arguments: 4\n    since: "6.1.0"\n'), State.BLOCKED),
        (("module_types: [open]\n    drivers", "module_types: [proprietary]\n    drivers"), State.BLOCKED),
    ],
)
def test_whom_a_probe_concerns(change: tuple[str, str], state: State) -> None:
    changed = MATRIX.replace(*change)
    assert changed != MATRIX
    assert verdict(BROKEN, matrix=sample_matrix(changed)).state is state


def test_a_probe_that_is_about_another_driver_does_not_hide_the_next_one() -> None:
    row = MATRIX.split("probes:\n")[1].split("systems:\n")[0]
    other = row.replace("id: resize", "id: other").replace("before: 535.300.01", "before: 535.100.01")
    matrix = sample_matrix(MATRIX.replace(row, other + row))
    assert [probe.id for probe in matrix.probes] == ["other", "resize"]
    assert verdict(BROKEN, matrix=matrix).state is State.BLOCKED


def test_a_question_that_the_lock_was_not_asked() -> None:
    told = verdict(BROKEN, matrix=sample_matrix(MATRIX.replace("arguments: 4", "arguments: 5")))
    assert told.state is State.UNKNOWN
    assert told.run == "driverforge lock --select 'debian12-amd64-*'"


def test_the_command_to_run_names_the_matrix_and_the_lock_that_were_read() -> None:
    given = Given(
        matrix=Path("my site.yaml"),
        lock=Path("site.lock.json"),
        bases={"debian12": "registry.site/debian:12"},
    )
    matrix, lock = sample_matrix(), sample_lock(drivers={})
    told = Judge(matrix, lock, today=TODAY, given=given).verdict(cells(matrix, sample_lock())[BUILDABLE])
    assert (
        told.run
        == "driverforge lock --matrix 'my site.yaml' --lock site.lock.json --select 'debian12-amd64-*'"
    )


def test_a_header_that_cannot_say_does_not_block() -> None:
    silent = HeaderFact(breaks=None, found="include/linux/pci.h is not among the headers")
    lock = sample_lock(header_facts={"linux-headers-6.1.0-53-common=6.1.187-1": {QUESTION: silent}})
    assert verdict(BROKEN, lock=lock).state is State.BUILD


def test_an_exclusion_blocks_with_its_reason_and_place() -> None:
    exclusion = '{id: never, systems: ["debian*"], reason: nobody wants it, source: a page}'
    told = verdict(
        JIT, matrix=sample_matrix(MATRIX.replace("exclusions:\n", f"exclusions:\n  - {exclusion}\n"))
    )
    assert (told.state, told.reason) == (State.BLOCKED, "nobody wants it")
    assert told.evidence == ("site.yaml:8: exclusion never", "source: a page")


def test_a_real_time_kernel_is_blocked_by_its_flavour() -> None:
    release = "6.1.0-50-rt-amd64"
    lock = sample_lock(kernels={release: kernel(release)})
    assert (
        verdict(f"debian12-amd64-535.261.03-{release}", lock=lock).reason
        == "NVIDIA's build refuses PREEMPT_RT"
    )


def test_an_os_that_is_not_in_the_lock_is_unknown_and_says_how_to_lock_it() -> None:
    told = verdict("ubuntu24.04-amd64-535.261.03-jit")
    assert told.state is State.UNKNOWN
    assert told.run.endswith("--select 'ubuntu24.04-amd64-*'")


def test_a_system_of_subscribers_says_what_lock_needs() -> None:
    matrix = load_matrix()
    cells = {cell.os.id: cell for cell in jit_cells(matrix)}
    judge = Judge(matrix, Lock(), today=date(2026, 1, 1))
    (needed,) = judge.verdict(cells["rhel9"]).evidence
    assert needed.startswith("a subscription is needed for rhel-9-for-")
    assert "--entitlement DIR" in needed
    assert judge.verdict(cells["rocky9"]).evidence == ()
    assert judge.verdict(cells["sles15.7"]).evidence == ()


@pytest.mark.parametrize(
    ("lock", "reason"),
    [
        (Lock(), "the lock holds nothing for debian12-amd64"),
        (sample_lock(drivers={}), "the lock does not pin driver 535.261.03"),
        (sample_lock(kernels={}), f"the lock does not know kernel {OLD}"),
    ],
)
def test_missing_pins_name_the_command(lock: Lock, reason: str) -> None:
    told = verdict(BUILDABLE, lock=lock, expand=sample_lock())
    assert (told.state, told.reason) == (State.UNKNOWN, reason)
    assert told.run == "driverforge lock --select 'debian12-amd64-*'"


@pytest.mark.parametrize("key", [JIT, BUILDABLE])
def test_what_build_would_refuse_is_not_planned(key: str) -> None:
    """The matrix's row has gained `firmware:`, say, since the lock was made."""
    roles = {
        role: packages for role, packages in sample_driver().items() if role not in ("firmware", "source")
    }
    told = verdict(key, lock=sample_lock(drivers={"535.261.03": roles}))
    assert (told.state, told.run) == (State.UNKNOWN, "driverforge lock --select 'debian12-amd64-*'")
    assert told.evidence == (
        "no package is pinned for the role 'firmware'",
        "the package nvidia-open-kernel-dkms (modules) is not pinned",
        "the package nvidia-kernel-dkms (modules) is not pinned",
    )


def test_headers_that_are_gone_block() -> None:
    told = verdict(BUILDABLE, lock=sample_lock(kernels={}, without_headers=(OLD,)), expand=sample_lock())
    assert told.state is State.BLOCKED


RUNFILE = """\
      - id: "535-runfile"
        branch: "535"
        version: 535.300.07
        payload: runfile
        module_types: [open]
        url: "https://example.org/{version}/NVIDIA-Linux-{machine}-{version}.run"
"""


def with_runfile() -> Matrix:
    text = MATRIX.replace("  - id: ubuntu24.04", f"{RUNFILE}  - id: ubuntu24.04")
    return sample_matrix(text.replace("535.261.03,", "535.300.07,", 1))


def test_an_archive_without_a_digest_is_unknown_and_the_command_says_what_to_decide() -> None:
    cell = "debian12-amd64-535.300.07-jit"
    lock = sample_lock(drivers={"535.300.07": sample_driver()})
    told = verdict(cell, matrix=with_runfile(), lock=lock)
    assert told.state is State.UNKNOWN
    assert told.run.startswith(
        "driverforge lock --select 'debian12-amd64-535.300.07-*' --trust-first-use   ("
    )
    assert "--archive FILE" in told.run
    # a lock that was made before the row: it has to look first
    told = verdict(cell, matrix=with_runfile())
    assert told.run == "driverforge lock --select 'debian12-amd64-*'"


def test_an_archive_that_the_lock_pins_is_built() -> None:
    pin = LockedArchive(
        version="535.300.07",
        arch="amd64",
        url="https://example.org/a.run",
        sha256="ab" * 32,
        size=0,
        origin=Origin.MANIFEST,
        source="a manifest",
    )
    lock = sample_lock(drivers={"535.300.07": sample_driver()}).with_archives([pin])
    assert verdict("debian12-amd64-535.300.07-jit", matrix=with_runfile(), lock=lock).state is State.BUILD


def vendor(packages: tuple[str, ...]) -> Verdict:
    finished = "          - {id: open, packages: ['linux-modules-nvidia-{branch}-{release}']}"
    lines = [line for line in MATRIX.splitlines() if "tree: usr/src" not in line]
    at = next(number for number, line in enumerate(lines) if line == "        modules:")
    lines[at + 1 : at + 1] = [finished, "        vendor_modules: true", "        variants: [precompiled]"]
    matrix = sample_matrix(
        "\n".join(lines).replace("        module_types: [open, proprietary]", "        module_types: [open]")
    )
    one = replace(
        with_headers(NEW, version="6.1.187-1"),
        vendor={"535.261.03": tuple(package(name) for name in packages)},
    )
    return verdict(BROKEN, matrix=matrix, lock=sample_lock(kernels={NEW: one}))


def test_a_distribution_that_ships_the_modules() -> None:
    told = vendor(("linux-modules-nvidia-535",))
    assert (told.state, told.packages) == (State.VENDOR_SHIPS, ("linux-modules-nvidia-535 1-1",))


def test_a_distribution_that_does_not_ship_them_yet() -> None:
    assert vendor(()).state is State.BLOCKED


@pytest.mark.parametrize(("today", "warned"), [(date(2026, 6, 30), False), (date(2026, 7, 1), True)])
def test_end_of_life_is_a_warning_from_the_month_after(today: date, warned: bool) -> None:
    matrix, lock = sample_matrix(), sample_lock()
    told = Judge(matrix, lock, today=today).verdict(cells(matrix, lock)[BUILDABLE])
    assert told.state is State.BUILD
    assert bool(told.warning) is warned


def test_a_branch_that_ended_in_an_unknown_month_is_warned_about() -> None:
    matrix, lock = (
        sample_matrix(MATRIX.replace("date: 2026-06, source: a page", "source: a list without it")),
        sample_lock(),
    )
    told = Judge(matrix, lock, today=TODAY).verdict(cells(matrix, lock)[BUILDABLE])
    assert told.warning == "branch 535 is past its end of life, no month is known (a list without it)"


def test_what_a_registry_says() -> None:
    build = verdict(BUILDABLE)
    there = with_presence(build, Present("sha256:1"), "registry/driver:tag")
    assert (there.state, there.digest) == (State.EXISTS, "sha256:1")
    assert with_presence(build, Absent(), "registry/driver:tag").state is State.BUILD
    silent = with_presence(build, Unknown("401 Unauthorized"), "registry/driver:tag")
    assert (silent.state, silent.unanswered) == (State.UNKNOWN, True)
    assert "401" in silent.reason
    assert silent.run.startswith("log in to the registry if it asks for that")
    told = with_presence(build, Unknown("it is a proxy", "ask its owner"), "registry/driver:tag")
    assert told.run == "ask its owner"


def test_flavours_that_share_headers_share_the_verdict() -> None:
    """One judgement a (driver, header tree): what a plan of 100,000 cells stands on."""
    asked = []

    class Counting(TargetLock):
        def facts(self, kernel: LockedKernel) -> dict[str, HeaderFact]:
            asked.append(kernel.release)
            return super().facts(kernel)

    common = with_headers(NEW, version="6.1.187-1").headers[1]
    names = [f"6.1.0-{number}-cloud-amd64" for number in range(100, 150)]
    kernels = {name: kernel(name, package(f"linux-headers-{name}"), common) for name in names}
    base = sample_lock(kernels=kernels).targets["debian12-amd64"]
    counting = Counting(**{name: getattr(base, name) for name in TargetLock.__slots__})
    matrix, lock = sample_matrix(), Lock(targets={"debian12-amd64": counting})
    judge = Judge(matrix, lock, today=TODAY)
    states = {judge.verdict(cell).state for cell in cells(matrix, lock).values() if cell.kernel is not None}
    assert states == {State.BLOCKED}
    assert len(asked) == 1
