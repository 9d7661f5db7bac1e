"""What a pass is, from what guests have said. The recorded lines are real ones: NVIDIA's open 535.261.03,
small modules with a fault each, Debian's 6.1.0-50-cloud-amd64.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping
from dataclasses import replace

import pytest

from driverforge_build.ports import GuestEnd
from driverforge_build.verify.guest import Answer, Transcript, read_transcript
from driverforge_build.verify.judge import (
    Check,
    Heard,
    Kind,
    Outcome,
    check_files,
    check_inserted,
    check_signatures,
    check_unsigned,
    unsigned,
)
from driverforge_build.verify.modules import ImageModules, read_sets
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from support.samples.modulesets import module_set
from support.samples.tinyko import append_signature, common_name, tiny_ko

RELEASE = "6.1.0-50-cloud-amd64"
DRIVER = "535.261.03"
DEPENDS = {"nvidia": "", "nvidia-uvm": "nvidia", "nvidia-modeset": "nvidia", "nvidia-peermem": "nvidia"}
SIGNATURE = b"..." + common_name("Debian Secure Boot CA") + b"..."
NO_GPU = ("nvidia-nvlink: Nvlink Core is being initialized", "NVRM: No NVIDIA GPU found.")


def ko(name: str, *more: str) -> bytes:
    return tiny_ko([f"depends={DEPENDS.get(name, '')}", f"vermagic={RELEASE} SMP", *more])


def modules_of(contents: Mapping[str, bytes], *, signer: str = "") -> ImageModules:
    files = module_set(
        {f"{name}.ko": content for name, content in contents.items()}, release=RELEASE, signer=signer
    )
    [found] = read_sets(
        files, driver=DriverVersion(DRIVER), kernel=KernelRelease.parse(RELEASE), module_types=("open",)
    )
    return found


def heard(answers: Mapping[str, Answer], *, end: GuestEnd = GuestEnd.OFF, trying: str = "") -> Heard:
    said = Transcript(release=RELEASE, answers=answers, trying=trying, done=not trying)
    return Heard(said=said, end=end, silence=90, console=("the last line",))


def inserted(name: str, status: int, *log: str, content: bytes = b"") -> Check:
    """What is made of one module's answer."""
    modules = modules_of({name: content or ko(name)})
    answer = Answer(status=status, words="", log=log)
    [check] = check_inserted(modules, heard({f"open/{name}.ko": answer}))
    return check


@pytest.mark.parametrize(
    ("name", "status", "log", "outcome", "reason"),
    [
        ("nvidia", 0, (), Outcome.INSERTED, ""),
        ("nvidia", errno.ENODEV, NO_GPU, Outcome.NO_GPU, "NVRM: No NVIDIA GPU found."),
        (
            "nvidia",
            errno.ENODEV,
            ("NVRM: No NVIDIA graphics adapter found!",),
            Outcome.NO_GPU,
            "NVRM: No NVIDIA graphics adapter found!",
        ),
        # ENODEV alone may have any reason
        (
            "nvidia",
            errno.ENODEV,
            ("nvidia: tainting kernel", "NVRM: something broke"),
            Outcome.FAILED,
            "No such device: NVRM: something broke",
        ),
        ("nvidia-uvm", errno.ENODEV, (), Outcome.NO_GPU, "its init found no device"),
        (
            "nvidia",
            errno.ENOEXEC,
            ("nvidia: disagrees about version of symbol module_layout",),
            Outcome.WRONG_KERNEL,
            "compiled against other versions of module_layout",
        ),
        (
            "nvidia",
            errno.ENOEXEC,
            ("nvidia: version magic '6.1.9 SMP' should be '6.1.0 SMP'",),
            Outcome.WRONG_KERNEL,
            "Exec format error: nvidia: version magic '6.1.9 SMP' should be '6.1.0 SMP'",
        ),
        (
            "nvidia-peermem",
            errno.EINVAL,
            (),
            Outcome.NO_PEERS,
            "compiled without a network driver's symbols: its init always ends so",
        ),
        ("nvidia", errno.EINVAL, (), Outcome.FAILED, "Invalid argument"),
        (
            "nvidia",
            errno.EKEYREJECTED,
            ("Loading of unsigned module is rejected",),
            Outcome.REJECTED,
            "Key was rejected by service: Loading of unsigned module is rejected",
        ),
        # insmod has its own reasons for this one, too: an unknown parameter
        ("nvidia", errno.ENOENT, (), Outcome.FAILED, "No such file or directory"),
    ],
)
def test_an_answer(name: str, status: int, log: tuple[str, ...], outcome: Outcome, reason: str) -> None:
    check = inserted(name, status, *log)
    assert (check.outcome, check.reason) == (outcome, reason)
    assert check.passed == (outcome.value in {"inserted", "no-gpu", "no-network-driver"})


def missing(*symbols: str, module: str = "nvidia_uvm") -> Answer:
    log = tuple(f"{module}: Unknown symbol {symbol} (err -2)" for symbol in symbols)
    return Answer(status=errno.ENOENT, words="", log=log)


def with_nvidia(name: str, answer: Answer) -> Check:
    """What is made of a module whose nvidia.ko has left again, and exports two symbols."""
    exporting = tiny_ko(["nvUvmInterfaceRegisterGpu", "nvidia_p2p_get_pages"], section="__ksymtab_strings")
    modules = modules_of({name: ko(name), "nvidia": ko("nvidia")})
    nvidia = replace(modules.modules[0], content=exporting)
    assert nvidia.file == "nvidia.ko"
    together = replace(modules, modules=(nvidia, modules.modules[1]))
    *_, check = check_inserted(together, heard({f"open/{name}.ko": answer}))
    return check


def test_symbols_that_are_missing_have_to_be_nvidias() -> None:
    fine = with_nvidia("nvidia-uvm", missing("nvUvmInterfaceRegisterGpu"))
    assert fine.outcome is Outcome.NO_DRIVER
    assert fine.reason == "1 symbol left, exported by nvidia.ko, which needs a GPU to stay"
    strange = with_nvidia("nvidia-uvm", missing("nvUvmInterfaceRegisterGpu", "pci_resize_resource"))
    assert (strange.outcome, strange.reason) == (
        Outcome.UNKNOWN_SYMBOL,
        "nothing exports pci_resize_resource",
    )
    reasons = {
        5: "nothing exports a, b, c, d, e",
        6: "nothing exports a, b, c, d, e and 1 more",
        7: "nothing exports a, b, c, d, e and 2 more",
    }
    for count, reason in reasons.items():
        assert with_nvidia("nvidia-uvm", missing(*"abcdefg"[:count])).reason == reason


def test_only_modules_that_export_what_is_missing_are_named() -> None:
    modules = modules_of({name: ko(name) for name in ("nvidia", "nvidia-modeset", "nvidia-uvm")})
    nvidia, uvm, modeset = modules.modules
    exporting = replace(nvidia, content=tiny_ko(["a", "b"], section="__ksymtab_strings"))
    both = replace(uvm, content=tiny_ko(["depends=nvidia,nvidia-modeset"]))
    together = replace(modules, modules=(exporting, modeset, both))
    *_, check = check_inserted(together, heard({"open/nvidia-uvm.ko": missing("a", "b")}))
    assert check.reason == "2 symbols left, exported by nvidia.ko, which needs a GPU to stay"


def test_a_kernel_without_its_own_modules_is_named_as_the_reason() -> None:
    drm = tiny_ko(["depends=drm,video,nvidia", f"vermagic={RELEASE} SMP"])
    modules = modules_of({"nvidia-drm": drm, "nvidia": ko("nvidia")})
    answers = {"open/nvidia-drm.ko": missing("drm_open", module="nvidia_drm")}
    *_, check = check_inserted(modules, heard(answers), absent={"drm", "ib_core"})
    assert check.reason == (
        "nothing exports drm_open; it depends on drm, which the kernel's packages do not hold"
    )


def test_a_symbol_of_another_version_is_no_missing_one() -> None:
    log = ("nvidia_uvm: disagrees about version of symbol kmalloc", *missing("kmalloc").log)
    check = with_nvidia("nvidia-uvm", Answer(status=errno.EINVAL, words="", log=log))
    assert (check.outcome, check.reason) == (
        Outcome.WRONG_KERNEL,
        "compiled against other versions of kmalloc",
    )


def test_the_network_drivers_symbols_are_for_peermem_alone() -> None:
    answer = missing("nvidia_p2p_get_pages", "ib_register_peer_memory_client", module="nvidia_peermem")
    assert with_nvidia("nvidia-peermem", answer).outcome is Outcome.NO_PEERS
    assert with_nvidia("nvidia-uvm", answer).outcome is Outcome.UNKNOWN_SYMBOL
    compiled = ko("nvidia-peermem") + b"\0ib_register_peer_memory_client\0"
    assert inserted("nvidia-peermem", errno.EINVAL, content=compiled).outcome is Outcome.FAILED


def test_a_guest_that_ended_early_fails_what_it_was_at_and_all_behind_it() -> None:
    modules = modules_of({name: ko(name) for name in DEPENDS})
    answers = {"open/nvidia.ko": Answer(status=errno.ENODEV, words="", log=NO_GPU)}
    hung = list(check_inserted(modules, heard(answers, end=GuestEnd.SILENT, trying="open/nvidia-uvm.ko")))
    assert [check.outcome for check in hung] == [
        Outcome.NO_GPU,
        Outcome.HUNG,
        Outcome.NOT_REACHED,
        Outcome.NOT_REACHED,
    ]
    assert hung[1].reason == "its init has not ended after 90 s"
    assert hung[2].reason == "not tried: open/nvidia-uvm.ko ended the guest"
    assert hung[1].log == ("the last line",)
    down = list(check_inserted(modules, heard(answers, trying="open/nvidia-uvm.ko")))
    assert down[1].outcome is Outcome.CRASHED
    assert not any(check.passed for check in (*hung[1:], *down[1:]))


@pytest.mark.parametrize(
    ("status", "log", "keys", "outcome"),
    [
        (0, (), (), Outcome.TRUSTED),
        # the signature is looked at before anything else
        (errno.ENODEV, NO_GPU, (), Outcome.TRUSTED),
        (
            errno.EKEYREJECTED,
            ("Loading of module with unavailable key is rejected",),
            ("Build time autogenerated kernel key: 7be1",),
            Outcome.UNTRUSTED,
        ),
        # it has the key
        (
            errno.EKEYREJECTED,
            ("Loading of module with unavailable key is rejected",),
            ("Debian Secure Boot CA: 6cce",),
            Outcome.REJECTED,
        ),
        # the signature does not fit
        (errno.EKEYREJECTED, (), (), Outcome.REJECTED),
        (errno.EBADMSG, (), (), Outcome.REJECTED),
    ],
)
def test_signatures(status: int, log: tuple[str, ...], keys: tuple[str, ...], outcome: Outcome) -> None:
    signed = append_signature(ko("nvidia"), signature=SIGNATURE)
    modules = modules_of({"nvidia": signed, "nvidia-uvm": ko("nvidia-uvm")}, signer="Debian Secure Boot CA")
    answers = {"open/nvidia.ko": Answer(status=status, words="", log=log)}
    before = heard(answers)
    [check] = check_signatures(modules, replace(before, said=replace(before.said, keys=keys)))
    assert (check.module, check.kind, check.outcome) == ("open/nvidia.ko", Kind.SIGNATURE, outcome)
    assert check.reason.startswith("signed by Debian Secure Boot CA")
    assert check.passed == (outcome is not Outcome.REJECTED)
    assert check.warned == (outcome is Outcome.UNTRUSTED)


def test_a_signature_without_a_name_is_told_by_its_key() -> None:
    signed = append_signature(ko("nvidia"), key_id=b"\x0a\xff", signature=bytes(16), id_type=1)
    modules = modules_of({"nvidia": signed}, signer="somebody")
    [check] = check_signatures(modules, heard({"open/nvidia.ko": Answer(status=0, words="", log=())}))
    assert check.reason == "signed by key 0aff"


def test_an_unsigned_copy_has_to_be_refused() -> None:
    path = "open/nvidia.ko"
    refused = Answer(status=errno.EKEYREJECTED, words="", log=("Loading of unsigned module is rejected",))
    check = check_unsigned(path, heard({unsigned(path): refused}))
    assert (check.module, check.outcome) == (path, Outcome.REFUSED)
    taken = Answer(status=errno.ENODEV, words="", log=NO_GPU)
    assert check_unsigned(path, heard({unsigned(path): taken})).outcome is Outcome.TAKEN


@pytest.mark.parametrize(
    ("content", "signer", "reason"),
    [
        (ko("nvidia"), "", ""),
        (ko("nvidia", f"version={DRIVER}"), "", ""),
        (ko("nvidia", "version=550.1"), "", f"it calls itself version 550.1, and its set {DRIVER}"),
        (
            tiny_ko([f"vermagic={RELEASE}x SMP "]),
            "",
            f"its vermagic is '{RELEASE}x SMP', and it lies with the modules of {RELEASE}",
        ),
        (ko("nvidia"), "somebody", "it is not signed, and module-set.json names somebody"),
        (
            append_signature(ko("nvidia"), signature=SIGNATURE),
            "",
            "it is signed, and module-set.json names no signer",
        ),
        (b"#!/bin/sh\n", "", "not a kernel module: no 64-bit little-endian ELF file"),
    ],
)
def test_files_are_what_their_set_says(content: bytes, signer: str, reason: str) -> None:
    [check] = check_files(modules_of({"nvidia": content}, signer=signer))
    assert (check.reason, check.passed) == (reason, not reason)


def test_a_file_with_another_digest_is_not_the_one_that_was_made() -> None:
    modules = modules_of({"nvidia": ko("nvidia")})
    changed = replace(modules.modules[0], content=ko("nvidia", "author=somebody"))
    [check] = check_files(replace(modules, modules=(changed,)))
    assert not check.passed
    assert check.reason.startswith(f"its content is sha256:{hashlib.sha256(changed.content).hexdigest()}")


def test_modules_are_inserted_behind_what_they_depend_on() -> None:
    contents = {
        "a-helper": tiny_ko(["depends=nvidia_modeset"]),
        "nvidia-drm": tiny_ko(["depends=drm,nvidia-modeset,nvidia"]),
        **{name: ko(name) for name in reversed(DEPENDS)},
    }
    order = [module.file for module in modules_of(contents).modules]
    assert order == [
        *("nvidia.ko", "nvidia-uvm.ko", "nvidia-modeset.ko", "nvidia-drm.ko", "nvidia-peermem.ko"),
        "a-helper.ko",
    ]
    ring = {"nvidia": tiny_ko(["depends=nvidia-uvm"]), "nvidia-uvm": ko("nvidia-uvm")}
    assert len(modules_of(ring).modules) == 2


def test_an_image_without_its_modules_is_an_error_and_no_empty_pass() -> None:
    files = module_set({"nvidia.ko": ko("nvidia"), "nvidia-uvm.ko": ko("nvidia-uvm")}, release=RELEASE)
    asked = {"driver": DriverVersion(DRIVER), "kernel": KernelRelease.parse(RELEASE)}
    with pytest.raises(InputError, match="has no proprietary modules for"):
        read_sets(files, module_types=("open", "proprietary"), **asked)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="describes other modules"):
        read_sets(files, module_types=("open",), **{**asked, "driver": DriverVersion("550.1")})  # type: ignore[arg-type]
    del files["open/nvidia-uvm.ko"]
    with pytest.raises(InputError, match="are not those that"):
        read_sets(files, module_types=("open",), **asked)  # type: ignore[arg-type]


def test_a_transcript_is_read_as_it_comes_over_a_serial_line() -> None:
    lines = """release 6.1.0-50-cloud-amd64\r
key Debian Secure Boot CA: 6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1: X509.rsa bb419ea1 []\r
begin kernel/video.ko\r
end kernel/video.ko 0 \r
begin open/nvidia.ko\r
log [    2.43] end open/nvidia.ko 0\r
log [    2.44][    T1] NVRM: No NVIDIA GPU found.\r
log [    2.45] NVRM: No NVIDIA GPU found.\r
log [    2.45]\r
end open/nvidia.ko 19 insmod: can't insert '/modules/open/nvidia.ko': No such device \r
begin open/nvidia-uvm.ko\r
log [    2.50] late"""
    said = read_transcript(lines.split("\n"))
    assert said.release == RELEASE
    assert said.keys == ("Debian Secure Boot CA: 6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1",)
    assert said.answers["kernel/video.ko"] == Answer(status=0, words="", log=())
    assert said.answers["open/nvidia.ko"] == Answer(
        status=19,
        words="insmod: can't insert '/modules/open/nvidia.ko': No such device",
        # what a module logs is no line of the guest's own
        log=("end open/nvidia.ko 0", "NVRM: No NVIDIA GPU found."),
    )
    assert (said.trying, said.done) == ("open/nvidia-uvm.ko", False)
    assert read_transcript(["begin a", "end a", "done"]) == Transcript(trying="a", done=True)
