"""Header probes on declarations as kernels have them."""

from __future__ import annotations

import pytest

from driverforge_core.driverversion import DriverVersion
from driverforge_core.headerprobe import HeaderProbe, ProbeRule, count_parameters
from driverforge_core.kernel import KernelRelease
from driverforge_host import catalogue

# include/linux/pci.h of 6.1.0-50, of 6.12.107+deb13, and the !CONFIG_PCI stub of both
THREE = (
    "/* int pci_resize_resource(a, b, c, d); */\nint __must_check pci_resize_resource(struct pci_dev "
    "*dev, int i, int size);\n"
)
FOUR = (
    "void f(void);\nint __must_check pci_resize_resource(struct pci_dev *dev, int i, int size,\n"
    "\t\t\t\t     int exclude_bars);\n"
)
MEMBER = """struct vm_area_struct {
	union {
		const vm_flags_t vm_flags;
		vm_flags_t __private __vm_flags;
	};
};
struct other { int x; };
"""
RESIZE = HeaderProbe(
    kind="arguments", symbol="pci_resize_resource", header="include/linux/pci.h", arguments=4
)
FLAGS = HeaderProbe(
    kind="missing-member", symbol="__vm_flags", header="include/linux/mm_types.h", struct="vm_area_struct"
)
IN_IRQ = HeaderProbe(kind="missing-macro", symbol="in_irq", header="include/linux/preempt.h")


@pytest.mark.parametrize(
    ("probe", "text", "evidence"),
    [
        (RESIZE, THREE, None),
        (
            RESIZE,
            FOUR,
            (
                "include/linux/pci.h:2: pci_resize_resource(struct pci_dev *dev, int i, int size, int "
                "exclude_bars)"
            ),
        ),
        (RESIZE, "", None),
        (FLAGS, MEMBER, None),
        (
            FLAGS,
            MEMBER.replace("__vm_flags", "vm_other"),
            "include/linux/mm_types.h: struct vm_area_struct has no __vm_flags",
        ),
        (FLAGS, "struct vm_area_struct;\n", None),
        (IN_IRQ, "#define in_irq()\t\t(hardirq_count())\n", None),
        (IN_IRQ, "static inline int in_irq(void) { return 0; }\n", None),
        (IN_IRQ, "// in_irq() is gone\n#define in_irqs\n", "include/linux/preempt.h: no in_irq"),
    ],
)
def test_evidence_or_none(probe: HeaderProbe, text: str, evidence: str | None) -> None:
    assert probe.breaks(text) == evidence


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), (" void ", 0), ("int a", 1), ("int a, int (*f)(int, int), char b", 3)]
)
def test_parameters_in_nested_parentheses_do_not_count(text: str, count: int) -> None:
    assert count_parameters(text) == count


def test_a_rule_concerns_branch_series_and_module_type() -> None:
    rule = ProbeRule(
        id="x",
        probe=RESIZE,
        drivers=((535, "535.309.01", ""), (550, "", "550.163.01-5")),
        module_types=("open",),
        since=(6, 3),
        reason="r",
    )
    new, old = KernelRelease.parse("6.12.107+deb13-cloud-amd64"), KernelRelease.parse("6.1.0-50-amd64")
    assert rule.concerns(DriverVersion("535.261.03"), ("open", "proprietary"), new)
    assert not rule.concerns(DriverVersion("535.309.01"), ("open",), new)
    assert not rule.concerns(DriverVersion("580.95.05"), ("open",), new)
    assert not rule.concerns(DriverVersion("550.163.01"), ("proprietary",), new)
    assert not rule.concerns(DriverVersion("550.163.01"), ("open",), old)


@pytest.mark.parametrize(
    ("package", "patched"),
    [
        ("550.163.01-5", True),
        ("550.163.01-5.1", True),
        ("550.163.01-5~bpo13+1", False),
        ("550.163.01-4", False),
        ("550.163.01-10", True),
        # another source, which nobody has patched
        ("550.200.02-5", False),
        ("", False),
    ],
)
def test_a_source_that_a_distribution_patched_is_not_concerned(package: str, patched: bool) -> None:
    """Debian's changelog: 550.163.01-5 has NVIDIA's later in_hardirq()."""
    rule = next(rule for rule in catalogue.PROBES if rule.id == "no-in-irq")
    assert rule.patched(DriverVersion("550.163.01"), package) is patched
    assert not rule.patched(DriverVersion("570.211.01"), package)


def test_the_catalogue_knows_the_four_argument_resize() -> None:
    rules = [rule for rule in catalogue.PROBES if rule.probe.breaks(FOUR)]
    kernel = KernelRelease.parse("6.12.107+deb13-cloud-amd64")
    assert any(rule.concerns(DriverVersion("550.163.01"), ("open",), kernel) for rule in rules)
