"""Questions to header trees, and their answers with evidence."""

from __future__ import annotations

import pytest

from driverforge_build.discover.answers import answer, answers
from driverforge_build.lock.pins import HeaderFact
from driverforge_build.matrix.probes import header_probe, question
from driverforge_core.headerprobe import HeaderProbe
from support.samples.sampledebian import FOUR, THREE, sample_matrix

CALL = "pci_resize_resource(struct pci_dev *dev, int i, int size"
RESIZE = HeaderProbe(
    kind="arguments", symbol="pci_resize_resource", header="include/linux/pci.h", arguments=4
)
MACRO = HeaderProbe(kind="missing-macro", symbol="in_irq", header="include/linux/preempt.h")
MEMBER = HeaderProbe(
    kind="missing-member", symbol="__vm_flags", header="include/linux/mm_types.h", struct="vm_area_struct"
)


def test_a_row_of_the_matrix_is_a_question() -> None:
    (row,) = sample_matrix().probes
    assert header_probe(row) == RESIZE
    assert question(RESIZE) == "include/linux/pci.h: arguments 4 pci_resize_resource"
    assert question(MACRO) == "include/linux/preempt.h: missing-macro in_irq"
    assert question(MEMBER) == "include/linux/mm_types.h: missing-member __vm_flags in struct vm_area_struct"


@pytest.mark.parametrize(
    ("probe", "text", "breaks", "found"),
    [
        (RESIZE, f"\n{THREE}\n", False, f"include/linux/pci.h:2: {CALL})"),
        (RESIZE, f"\n\n{FOUR}\n", True, f"include/linux/pci.h:3: {CALL}, int exclude_bars)"),
        (RESIZE, "int other(void);", False, "include/linux/pci.h: does not declare pci_resize_resource"),
        (RESIZE, None, None, "include/linux/pci.h is not among the headers"),
        (MACRO, "#define in_irq() (1)\n", False, "include/linux/preempt.h: has in_irq"),
        (MACRO, "/* in_irq() is gone */\n", True, "include/linux/preempt.h: no in_irq"),
        (
            MEMBER,
            "struct vm_area_struct { int __vm_flags; };",
            False,
            "include/linux/mm_types.h: has __vm_flags",
        ),
        (
            MEMBER,
            "struct vm_area_struct;",
            False,
            "include/linux/mm_types.h: does not define struct vm_area_struct",
        ),
        (
            MEMBER,
            "struct vm_area_struct { int x; };",
            True,
            "include/linux/mm_types.h: struct vm_area_struct has no __vm_flags",
        ),
    ],
)
def test_answers(probe: HeaderProbe, text: str | None, breaks: bool | None, found: str) -> None:
    assert answer(probe, text) == HeaderFact(breaks=breaks, found=found)


def test_all_questions_to_one_tree() -> None:
    told = answers([RESIZE, MACRO], {RESIZE.header: FOUR})
    assert {asked: fact.breaks for asked, fact in told.items()} == {
        question(RESIZE): True,
        question(MACRO): None,
    }
