"""Verdicts: pure functions of matrix and lock."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from driverforge_build.advice import Given
from driverforge_build.lock.pins import (
    HeaderFact,
    Lock,
    LockedArchive,
    LockedBase,
    LockedKernel,
    Origin,
    TargetLock,
)
from driverforge_build.matrix import Cell, Matrix, load_matrix
from driverforge_build.plan.rows import all_cells
from driverforge_build.verdict.decide import Judge
from driverforge_build.verdict.verdicts import Source, State, Verdict, source_of, with_presence
from driverforge_oci.presence import Absent, Present, Unknown
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import BASE_DIGEST, BOTH_BREAK, DRIVER, MATRIX, NEW, OLD, sample_matrix

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


def test_a_module_type_that_breaks_is_left_out_with_the_line_and_the_others_are_built() -> None:
    told = verdict(BROKEN)
    reason = "pci_resize_resource() has four arguments"
    assert told.state is State.BUILD
    assert told.left_out == {"open": reason}
    assert told.reason == "headers 6.1.187-1 of bookworm-security, gcc-12; without its open modules"
    assert told.warnings[0] == f"built without open modules: {reason}"
    assert told.evidence[0] == f"linux-headers-6.1.0-53-common 6.1.187-1: {FOUND}"
    assert told.evidence[1] == "site.yaml:10: probe resize, open modules of 535"
    assert "a compiler's log" in told.evidence
    assert told.narrowed(cells(sample_matrix(), sample_lock())[BROKEN]).module_types == ("proprietary",)


OPEN_ONLY = MATRIX.replace(
    "module_types: [open, proprietary]\n        repositories", "module_types: [open]\n        repositories"
).replace("          - {id: proprietary, packages: [nvidia-kernel-dkms], tree: usr/src/closed}\n", "")


@pytest.mark.parametrize("text", [OPEN_ONLY, BOTH_BREAK])
def test_a_kernel_that_leaves_no_module_type_is_blocked_with_the_line(text: str) -> None:
    assert text != MATRIX
    told = verdict(BROKEN, matrix=sample_matrix(text))
    assert (told.state, told.reason) == (State.BLOCKED, "pci_resize_resource() has four arguments")
    assert told.evidence[0] == f"linux-headers-6.1.0-53-common 6.1.187-1: {FOUND}"
    assert not told.left_out


PATCHED = BOTH_BREAK.replace("before: 535.300.01}", "before: 535.300.01, patched: 535.261.03-2}")


@pytest.mark.parametrize(
    ("open_source", "proprietary_source", "left_out"),
    [("1", "1.9", None), ("1", "2", {"open"}), ("2", "2+deb12u1", set())],
)
def test_a_reason_is_true_of_the_source_that_is_locked(
    open_source: str, proprietary_source: str, left_out: set[str] | None
) -> None:
    """What a distribution has patched compiles, as Debian's 550.163.01-5 for kernels without in_irq()."""
    found = (
        package("nvidia-open-kernel-dkms", f"{DRIVER}-{open_source}"),
        package("nvidia-kernel-dkms", f"{DRIVER}-{proprietary_source}"),
    )
    lock = sample_lock(drivers={DRIVER: {**sample_driver(), "source": found}})
    told = verdict(BROKEN, matrix=sample_matrix(PATCHED), lock=lock)
    assert told.state is (State.BLOCKED if left_out is None else State.BUILD)
    assert {*told.left_out} == (left_out or set())
    assert (left_out == set()) == (told.evidence == ())


def test_two_probes_that_break_a_type_each_leave_none_and_both_are_told() -> None:
    row = MATRIX.split("probes:\n")[1].split("systems:\n")[0]
    other = row.replace("id: resize", "id: other").replace("[open]", "[proprietary]", 1)
    other = other.replace("reason: pci_resize_resource() has four arguments", "reason: the other one")
    told = verdict(BROKEN, matrix=sample_matrix(MATRIX.replace(row, row + other)))
    assert told.state is State.BLOCKED
    assert told.reason == "pci_resize_resource() has four arguments; the other one"
    assert sum(FOUND in line for line in told.evidence) == 2


def test_a_probe_of_a_type_that_is_left_out_already_is_not_asked_for() -> None:
    row = MATRIX.split("probes:\n")[1].split("systems:\n")[0]
    newer = row.replace("id: resize", "id: newer").replace("arguments: 4", "arguments: 5")
    told = verdict(BROKEN, matrix=sample_matrix(MATRIX.replace(row, row + newer)))
    assert told.state is State.BUILD, "the lock has no answer to `newer`, which is about open modules alone"


def test_a_type_that_the_matrix_excludes_is_no_warning() -> None:
    exclusion = '{id: no-open, kernels: ["6.1.0-53-*"], module_types: [open], reason: r, source: s}'
    matrix = sample_matrix(MATRIX.replace("exclusions:\n", f"exclusions:\n  - {exclusion}\n"))
    assert cells(matrix, sample_lock())[BROKEN].module_types == ("proprietary",)
    told = verdict(BROKEN, matrix=matrix)
    assert told.state is State.BUILD
    assert not [warning for warning in told.warnings if "without" in warning]


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        (("before: 535.300.01", "before: 535.261.03"), set()),
        (("before: 535.300.01", "before: 535.261.04"), {"open"}),
        (("arguments: 4\n", 'arguments: 4\n    since: "6.1.1"\n'), set()),
        (("arguments: 4\n", 'arguments: 4\n    since: "6.1.0"\n'), {"open"}),
        (("module_types: [open]\n    drivers", "module_types: [proprietary]\n    drivers"), {"proprietary"}),
    ],
)
def test_whom_a_probe_concerns(change: tuple[str, str], left_out: set[str]) -> None:
    changed = MATRIX.replace(*change)
    assert changed != MATRIX
    assert set(verdict(BROKEN, matrix=sample_matrix(changed)).left_out) == left_out


def test_a_probe_that_is_about_another_driver_does_not_hide_the_next_one() -> None:
    row = MATRIX.split("probes:\n")[1].split("systems:\n")[0]
    other = row.replace("id: resize", "id: other").replace("before: 535.300.01", "before: 535.100.01")
    matrix = sample_matrix(MATRIX.replace(row, other + row))
    assert [probe.id for probe in matrix.probes] == ["other", "resize"]
    assert set(verdict(BROKEN, matrix=matrix).left_out) == {"open"}


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
        told.run == "driverforge lock --matrix 'my site.yaml' --lock site.lock.json "
        "--base debian12=registry.site/debian:12 --select 'debian12-amd64-*'"
    )


def test_a_header_that_cannot_say_does_not_block() -> None:
    silent = HeaderFact(breaks=None, found="include/linux/pci.h is not among the headers")
    lock = sample_lock(header_facts={"linux-headers-6.1.0-53-common=6.1.187-1": {QUESTION: silent}})
    told = verdict(BROKEN, lock=lock)
    assert (told.state, told.left_out) == (State.BUILD, {})


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


def test_a_driver_in_a_repository_of_subscribers_says_what_lock_needs() -> None:
    matrix = load_matrix()
    release = "6.4.0-150700.53.19-default"
    locked = target(kernel(release), os="sles15.7", drivers={}, repositories=())
    lock = Lock(targets={"sles15.7-amd64": locked})
    cell = cells(matrix, lock)[f"sles15.7-amd64-595.71.05-{release}"]
    told = Judge(matrix, lock, today=TODAY).verdict(cell)
    assert told.state is State.UNKNOWN
    assert told.reason.startswith("a subscription is needed for sle-module-basesystem, ")
    assert told.run.startswith("driverforge lock --select 'sles15.7-amd64-*'   (")
    read = replace(target().repositories[0], suite="sle-module-basesystem")
    with_it = Lock(targets={"sles15.7-amd64": replace(locked, repositories=(read,))})
    told = Judge(matrix, with_it, today=TODAY).verdict(cell)
    assert told.reason == "the lock does not pin driver 595.71.05"


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
        variants: [jit]
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
    # the lock does not say whether it was ever asked for: a run for other drivers did not
    assert told.reason == "NVIDIA's archive 535.300.07 for amd64 is not pinned"
    assert told.run == (
        "driverforge lock --select 'debian12-amd64-535.300.07-*'   (asks NVIDIA for its sha256; where none "
        "is published, add --archive FILE, or --trust-first-use)"
    )
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


OPEN_PACKAGE = f"linux-modules-nvidia-535-open-{NEW}"
CLOSED_PACKAGE = f"linux-modules-nvidia-535-{NEW}"


def vendor_matrix() -> Matrix:
    """The distribution publishes finished modules of both types for each kernel."""
    finished = [
        "          - {id: open, packages: ['linux-modules-nvidia-{branch}-open-{release}']}",
        "          - {id: proprietary, packages: ['linux-modules-nvidia-{branch}-{release}']}",
    ]
    lines = [line for line in MATRIX.splitlines() if "tree: usr/src" not in line]
    at = next(number for number, line in enumerate(lines) if line == "        modules:")
    lines[at + 1 : at + 1] = [*finished, "        vendor_modules: true", "        variants: [precompiled]"]
    return sample_matrix("\n".join(lines))


def vendor(*names: str, **changes: object) -> Verdict:
    one = replace(
        with_headers(NEW, version="6.1.187-1"),
        vendor={"535.261.03": tuple(package(name) for name in names)},
    )
    return verdict(BROKEN, matrix=vendor_matrix(), lock=sample_lock(kernels={NEW: one}, **changes))


def test_modules_that_the_distribution_ships_are_built_from_its_packages() -> None:
    told = vendor(OPEN_PACKAGE, CLOSED_PACKAGE)
    assert (told.state, told.left_out) == (State.BUILD, {})
    assert told.packages == (f"{OPEN_PACKAGE} 1-1", f"{CLOSED_PACKAGE} 1-1")
    assert told.reason == f"Debian 12 ships the modules: {', '.join(told.packages)}"


def test_a_module_type_that_the_distribution_does_not_ship_is_left_out() -> None:
    told = vendor(OPEN_PACKAGE)
    assert (told.state, told.packages) == (State.BUILD, (f"{OPEN_PACKAGE} 1-1",))
    lacking = "Debian 12 has no modules of 535.261.03 for this kernel (yet)"
    assert told.left_out == {"proprietary": lacking}
    assert f"built without proprietary modules: {lacking}" in told.warnings


def test_a_distribution_that_ships_none_yet_blocks() -> None:
    told = vendor()
    assert (told.state, told.packages) == (State.BLOCKED, ())


def test_shipped_modules_without_the_rest_of_the_driver_are_unknown() -> None:
    assert vendor(OPEN_PACKAGE, drivers={"535.261.03": {}}).state is State.UNKNOWN


def test_where_the_modules_of_a_cell_come_from() -> None:
    lock = sample_lock()
    compiled, shipped = cells(sample_matrix(), lock), cells(vendor_matrix(), lock)
    assert source_of(compiled[JIT]) is Source.NODE
    assert source_of(compiled[BUILDABLE]) is Source.COMPILE
    assert source_of(shipped[BUILDABLE]) is Source.VENDOR


def test_a_base_image_that_nothing_pins_is_a_warning_of_what_is_built() -> None:
    matrix, lock = sample_matrix(MATRIX.replace(f"@sha256:{BASE_DIGEST}", "")), sample_lock()
    cell, told = cells(matrix, lock)[BUILDABLE], "the lock has no digest of the base image {}: nobody notices"

    def warnings(lock: Lock, given: Given | None = None) -> str:
        return " ".join(Judge(matrix, lock, today=date(2026, 1, 1), given=given).verdict(cell).warnings)

    assert told.format("debian:bookworm") in warnings(lock)
    base = LockedBase(reference="debian:bookworm", digest="sha256:" + "1" * 64, index="sha256:" + "2" * 64)
    pinned = sample_lock(base=base)
    assert warnings(pinned) == ""
    # the digest is that image's alone
    assert told.format("site/debian:12") in warnings(pinned, Given(bases={"debian12": "site/debian:12"}))
    assert Judge(matrix, sample_lock(drivers={}), today=date(2026, 1, 1)).verdict(cell).warnings == ()


@pytest.mark.parametrize(("today", "warned"), [(date(2026, 6, 30), False), (date(2026, 7, 1), True)])
def test_end_of_life_is_a_warning_from_the_month_after(today: date, warned: bool) -> None:
    matrix, lock = sample_matrix(), sample_lock()
    told = Judge(matrix, lock, today=today).verdict(cells(matrix, lock)[BUILDABLE])
    assert told.state is State.BUILD
    assert bool(told.warnings) is warned


def test_a_branch_that_ended_in_an_unknown_month_is_warned_about() -> None:
    matrix, lock = (
        sample_matrix(MATRIX.replace("date: 2026-06, source: a page", "source: a list without it")),
        sample_lock(),
    )
    told = Judge(matrix, lock, today=TODAY).verdict(cells(matrix, lock)[BUILDABLE])
    assert told.warnings == ("branch 535 is past its end of life, no month is known (a list without it)",)


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
    told = [judge.verdict(cell) for cell in cells(matrix, lock).values() if cell.kernel is not None]
    assert {tuple(one.left_out) for one in told} == {("open",)}
    assert len(asked) == 1
