"""Small readers: deb822, os-release, PCI from sysfs, architecture and module names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core import arch, deb822, names
from driverforge_core.errors import InputError
from driverforge_core.osid import OsId, parse_os_release
from driverforge_host.gpu.pci import parse_sysfs

PACKAGES = """\
Package: linux-headers-6.1.0-50-cloud-amd64
Version: 6.1.176-1
Description: Header files for Linux 6.1.0-50-cloud-amd64
 This package provides the architecture-specific kernel header files.
 .
 It is usually installed with a kernel.
Filename: pool/main/l/linux/linux-headers-6.1.0-50-cloud-amd64_6.1.176-1_amd64.deb
# a comment
Size: 1461256

\t
Package: b
SHA256:
 0123 10 main/binary-amd64/Packages
 4567 11 main/binary-arm64/Packages
"""


def test_stanzas_with_comments_blank_lines_and_continuations() -> None:
    first, second = deb822.parse(PACKAGES)
    assert list(first) == ["Package", "Version", "Description", "Filename", "Size"]
    assert first["Description"].splitlines()[1:] == [
        "This package provides the architecture-specific kernel header files.",
        ".",
        "It is usually installed with a kernel.",
    ]
    assert second == {
        "Package": "b",
        "SHA256": "\n0123 10 main/binary-amd64/Packages\n4567 11 main/binary-arm64/Packages",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Package: a\nVersion 1\n", "line 2 is no 'Field: value'"),
        (": value\n", "line 1 is no"),
        (" continued\n", "line 1 continues a field"),
        ("A: 1\n\n  again\n", "line 3 continues a field"),
        ("A: 1\nB: 2\nA: 3\n", "line 3 has a field that is in its stanza already"),
    ],
)
def test_a_damaged_index_is_refused_by_line(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(deb822.parse(text))


field = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,9}", fullmatch=True)
line = st.from_regex(r"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True)
stanza = st.dictionaries(field, st.lists(line, min_size=1, max_size=3).map("\n".join), min_size=1, max_size=4)


@given(st.lists(stanza, max_size=3))
def test_stanzas_round_trip(stanzas: list[dict[str, str]]) -> None:
    text = "\n".join(
        "".join(f"{name}: {value}\n".replace("\n", "\n ")[:-1] for name, value in one.items())
        for one in stanzas
    )
    assert list(deb822.parse(text)) == stanzas


def test_os_release_with_quotes_and_escapes() -> None:
    found = parse_os_release(
        'PRETTY_NAME="Debian GNU/Linux 12 (\\"bookworm\\")"\nNAME=\'Debian\'\n# '
        'comment\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n'
        'ID=debian\nID_LIKE="rhel centos  fedora"\nnot an assignment\n'
    )
    assert (found.id, found.version, found.codename) == ("debian", "12", "bookworm")
    assert found.like == ("rhel", "centos", "fedora")
    assert found.pretty_name == 'Debian GNU/Linux 12 ("bookworm")'
    assert OsId(id=found.id, version=found.version) == OsId.parse("debian12")


def test_a_rolling_release_has_no_os_id() -> None:
    sid = parse_os_release("ID=debian\nVERSION_CODENAME=sid\n")
    assert sid.version == ""
    with pytest.raises(InputError, match="is not an OS name and version") as caught:
        OsId(id=sid.id, version=sid.version)
    assert "VERSION_ID" in caught.value.details[0]
    assert parse_os_release("").id == "linux"


@pytest.mark.parametrize(
    ("vendor", "class_code", "is_gpu", "is_nvswitch"),
    [
        ("0x10de\n", "0x030000\n", True, False),
        ("0x10de\n", "0x030200\n", True, False),
        ("0x10de\n", "0x040300\n", False, False),
        ("0x10de\n", "0x068000\n", False, True),
        ("0x1002\n", "0x030000\n", False, False),
    ],
)
def test_gpus_among_pci_devices(vendor: str, class_code: str, is_gpu: bool, is_nvswitch: bool) -> None:
    device = parse_sysfs(
        "0000:3b:00.0",
        vendor=vendor,
        device="0x2330\n",
        class_code=class_code,
        driver="../../bus/pci/drivers/nvidia\n",
    )
    assert (device.is_gpu, device.is_nvswitch) == (is_gpu, is_nvswitch)
    assert (device.device, device.driver) == (0x2330, "nvidia")


@pytest.mark.parametrize(
    ("address", "vendor"),
    [("3b:00.0", "0x10de"), ("0000:3b:00.8", "0x10de"), ("0000:3b:00.0", ""), ("0000:3b:00.0", "GPU")],
)
def test_texts_that_are_no_pci_device(address: str, vendor: str) -> None:
    with pytest.raises(InputError):
        parse_sysfs(address, vendor=vendor, device="0x1", class_code="0x030000")


def test_both_names_of_an_architecture() -> None:
    assert [arch.to_machine(name) for name in arch.ARCHITECTURES] == ["x86_64", "aarch64"]
    assert [arch.to_arch(name) for name in ("x86_64", "aarch64", "amd64", "arm64")] == [
        "amd64",
        "arm64",
        "amd64",
        "arm64",
    ]
    assert arch.to_machine("aarch64") == "aarch64"
    with pytest.raises(InputError, match="'riscv64' is not a supported architecture"):
        arch.to_arch("riscv64")


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-uvm",
        "nvidia_uvm",
        "nvidia-uvm.ko",
        "/lib/modules/6.1/updates/nvidia-uvm.ko.xz",
        "nvidia-uvm.ko.zst",
    ],
)
def test_a_module_has_one_name(name: str) -> None:
    assert names.normalise(name) == "nvidia_uvm"
    assert names.normalise(name) in names.NVIDIA_MODULES
