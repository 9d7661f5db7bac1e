"""The cost of a verdict does not grow with the lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from driverforge_build.lock.pins import HeaderFact, Lock
from driverforge_build.plan.rows import all_cells
from driverforge_build.verdict.decide import Judge
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import sample_matrix

QUESTION = "include/linux/pci.h: arguments 4 pci_resize_resource"
RELEASE = "6.1.0-53-cloud-amd64"


class Facts(dict[str, dict[str, HeaderFact]]):
    """Header facts that count how often somebody walks through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def test_what_breaks_for_a_kernel_is_told_without_a_walk_through_the_facts_of_all_kernels() -> None:
    headers = package(f"linux-headers-{RELEASE}"), package("linux-headers-6.1.0-53-common")
    facts = Facts({headers[1].key: {QUESTION: HeaderFact(breaks=True, found="include/linux/pci.h:9: x")}})
    drivers = {"535.261.03": sample_driver()}
    whole = replace(target(kernel(RELEASE, *headers)), header_facts=facts, drivers=drivers)
    matrix, lock = sample_matrix(), Lock(targets={"debian12-amd64": whole})
    judge = Judge(matrix, lock, today=date(2026, 11, 21))
    assert any(judge.verdict(cell).left_out for cell in all_cells(matrix, lock))
    assert facts.walks == 0
