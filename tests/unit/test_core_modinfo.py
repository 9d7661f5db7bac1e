"""What a module file says about itself; tests/tree/test_core_oracles.py asks modinfo(8) the same."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import DriverforgeError, InputError, Unsupported
from driverforge_core.modinfo import (
    ModuleSignature,
    exported_symbols,
    read_modinfo,
    read_signature,
    without_signature,
)
from support.samples.tinyko import append_signature, common_name, tiny_ko

ENTRIES = [
    "version=550.163.01",
    "alias=pci:v000010DEd*sv*sd*bc03sc00i00*",
    "alias=char-major-195-*",
    "depends=drm,backlight",
    "parm=NVreg_A:int=1",
    "vermagic=6.1.0-50-cloud-amd64 SMP preempt mod_unload modversions ",
]
KO = tiny_ko(ENTRIES)
LENGTH = len(KO) - 2 * 64 + 32  # sh_size of the second of three section headers, which end the file
LYING = KO[:LENGTH] + (len(KO)).to_bytes(8, "little") + KO[LENGTH + 8 :]


@pytest.mark.parametrize("pack", [bytes, lzma.compress, gzip.compress], ids=["plain", "xz", "gzip"])
def test_values_of_a_module(pack: Callable[[bytes], bytes]) -> None:
    info = read_modinfo(pack(KO))
    assert info["version"] == ["550.163.01"]
    assert len(info["alias"]) == 2
    assert info["depends"] == ["drm,backlight"]
    assert info["parm"] == ["NVreg_A:int=1"]
    assert info["vermagic"] == ["6.1.0-50-cloud-amd64 SMP preempt mod_unload modversions "]


def test_signatures() -> None:
    assert read_signature(KO) is None
    pkcs7 = append_signature(KO, signature=b"..." + common_name("Debian Secure Boot Signer") + b"...")
    assert read_signature(lzma.compress(pkcs7)) == ModuleSignature(
        signer="Debian Secure Boot Signer", key_id=b"", size=38
    )
    old = append_signature(
        KO, signer=b"Magrathea: Glacier signing key", key_id=b"\x01\x02", signature=bytes(256), id_type=1
    )
    assert read_signature(old) == ModuleSignature(
        signer="Magrathea: Glacier signing key", key_id=b"\x01\x02", size=256
    )
    by_key_id = append_signature(KO, signature=b"no name in here")
    assert read_signature(by_key_id) == ModuleSignature(signer="", key_id=b"", size=15)
    assert read_modinfo(pkcs7) == read_modinfo(KO)


@pytest.mark.parametrize(
    ("data", "error", "problem"),
    [
        (b"", InputError, "no 64-bit little-endian ELF"),
        (b"#!/bin/sh\n", InputError, "no 64-bit little-endian ELF"),
        (b"\x7fELF\x01\x01" + KO[6:], InputError, "no 64-bit little-endian ELF"),
        (tiny_ko(ENTRIES, section=".text"), InputError, "has no .modinfo section"),
        (KO[:40], InputError, "points outside the file"),
        (KO[:-100], InputError, "points outside the file"),
        (LYING, InputError, "cut off inside .modinfo"),
        (lzma.compress(KO)[:-20], InputError, "damaged"),
        (gzip.compress(KO)[:-20], InputError, "damaged"),
        (b"\x28\xb5\x2f\xfd....", Unsupported, "zstd"),
    ],
)
def test_files_that_are_no_module(data: bytes, error: type[DriverforgeError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        read_modinfo(data)


def test_a_trailer_that_claims_more_than_the_file_has() -> None:
    lying = append_signature(b"", signature=bytes(10))[10:]
    with pytest.raises(InputError, match="longer than the file"):
        read_signature(lying)
    with pytest.raises(InputError, match="longer than the file"):
        read_signature(lying[-30:])


@given(st.integers(min_value=0, max_value=len(KO) - 1), st.integers(min_value=0, max_value=255))
def test_a_damaged_byte_gives_a_value_or_our_error(position: int, byte: int) -> None:
    damaged = KO[:position] + bytes([byte]) + KO[position + 1 :]
    with suppress(DriverforgeError):
        assert all(isinstance(value, list) for value in read_modinfo(damaged).values())


def test_exported_symbols_are_the_strings_of_their_section() -> None:
    exporting = tiny_ko(["nvidia_register_module", "nvidia_get_rm_ops", ""], section="__ksymtab_strings")
    assert exported_symbols(exporting) == {"nvidia_register_module", "nvidia_get_rm_ops"}
    assert exported_symbols(KO) == frozenset()
    with pytest.raises(InputError, match="no 64-bit"):
        exported_symbols(b"\x7fELF\x01")


def test_an_unsigned_copy_is_the_module_before_it_was_signed() -> None:
    signed = append_signature(KO, signer=b"Magrathea", key_id=b"\x01", signature=bytes(16), id_type=1)
    assert without_signature(signed) == without_signature(KO) == KO


@given(st.binary(max_size=80))
def test_a_signature_that_is_no_message_names_no_key(message: bytes) -> None:
    found = read_signature(append_signature(KO, signature=message))
    assert found is not None
    assert (found.key_id, found.digest) == (b"", "") or message.startswith(b"\x30")
