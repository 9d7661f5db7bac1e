"""What guests run on, from what a trial showed."""

from __future__ import annotations

import pytest

from driverforge_build.engine.accelerator import Accelerator, Trial, judge
from support.machines.accelerator import identity


@pytest.mark.parametrize(
    ("trial", "kind", "why"),
    [
        (Trial(answered=True, status=0, said=""), "kvm", "a guest booted with it"),
        # it answered, and was killed because it did not power off
        (Trial(answered=True, status=None, said=""), "kvm", "a guest booted with it"),
        (
            Trial(answered=False, status=None, said=""),
            "tcg",
            "/dev/kvm is there, but a guest did not answer within 10 s",
        ),
        (
            Trial(
                answered=False,
                status=-6,
                said="qemu: error: failed to set MSR\nqemu: kvm.c:3183: Assertion\n",
            ),
            "tcg",
            "/dev/kvm is there, but QEMU ended with -6 and said 'qemu: error: failed to set MSR'",
        ),
        # a kernel that panics reboots, and QEMU ends well
        (
            Trial(answered=False, status=0, said=""),
            "tcg",
            "/dev/kvm is there, but QEMU ended with 0 and said 'nothing'",
        ),
    ],
)
def test_only_a_guest_that_ran_a_program_of_its_own_makes_it_kvm(trial: Trial, kind: str, why: str) -> None:
    found = judge(trial)
    assert (found.kind, found.why) == (kind, why)


def test_the_processor_without_a_feature_is_for_software_emulation_only() -> None:
    kvm, tcg = Accelerator(kind="kvm", why="it boots"), Accelerator(kind="tcg", why="it hangs")
    assert kvm.words("amd64") == ("-accel", "kvm", "-cpu", "host")
    assert tcg.words("amd64") == ("-accel", "tcg,thread=multi", "-cpu", "max,-cx16")
    assert tcg.words("arm64") == ("-accel", "tcg,thread=multi", "-cpu", "max")
    assert [str(kvm), str(tcg)] == ["KVM (it boots)", "TCG, software emulation (it hangs)"]


def test_a_saved_guest_belongs_to_its_accelerator_and_not_to_the_reason_for_it() -> None:
    kvm, tcg = Accelerator(kind="kvm", why=""), Accelerator(kind="tcg", why="")
    assert identity(kvm) != identity(tcg)
    assert identity(kvm)["host"], "the state of a guest under KVM has seen this very processor"
    assert identity(tcg) == identity(Accelerator(kind="tcg", why="another"))
