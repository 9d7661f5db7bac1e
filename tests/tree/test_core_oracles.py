"""Our readers against the programs that define the formats: dpkg, rpm, modinfo."""

from __future__ import annotations

import lzma
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driverforge_core import debversion, rpmversion
from driverforge_core.modinfo import read_modinfo, read_signature, without_signature
from support.samples.tinyko import append_signature, tiny_ko

deb = st.from_regex(r"([0-9]{1,2}:)?[0-9][a-cA0-2.+~]{0,6}(-[a-cA0-2.+~]{1,4})?", fullmatch=True)
COMPARE = """\
while read -r a b; do
  if dpkg --compare-versions "$a" lt "$b"; then echo -1
  elif dpkg --compare-versions "$a" eq "$b"; then echo 0
  else echo 1; fi
done
"""
rpm_part = st.from_regex(r"[a-cA0-2._+~^]{1,8}", fullmatch=True)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not installed")
@settings(max_examples=8, deadline=None)
@given(st.lists(deb, min_size=8, max_size=8, unique=True))
def test_deb_order_is_dpkgs(versions: list[str]) -> None:
    """28 pairs an example, all of them in one shell: dpkg has no batch mode."""
    pairs = list(combinations(versions, 2))
    told = subprocess.run(
        ["sh", "-c", COMPARE],
        input="".join(f"{a} {b}\n" for a, b in pairs),
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stderr == ""
    assert [debversion.compare(a, b) for a, b in pairs] == [int(answer) for answer in told.stdout.split()]


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not installed")
@settings(max_examples=20, deadline=None)
@given(st.lists(rpm_part, min_size=8, max_size=8, unique=True))
def test_the_order_of_a_part_is_that_of_the_rpm_program(parts: list[str]) -> None:
    """28 pairs an example, all of them in one run of rpm."""
    pairs = list(combinations(parts, 2))
    calls = "".join(f"print(rpm.vercmp('{a}', '{b}'), '')" for a, b in pairs)
    told = subprocess.run(["rpm", "--eval", f"%{{lua:{calls}}}"], capture_output=True, text=True, check=True)
    assert [rpmversion.vercmp(a, b) for a, b in pairs] == [int(word) for word in told.stdout.split()]


@pytest.mark.skipif(shutil.which("modinfo") is None, reason="modinfo (kmod) is not installed")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{3,8}", fullmatch=True).filter(
            lambda name: name not in ("parm", "parmtype") and not name.startswith("sig")
        ),
        st.from_regex(r"[ -~]{0,20}", fullmatch=True),
        min_size=1,
    )
)
def test_values_are_the_ones_modinfo_prints(tmp_path: Path, entries: dict[str, str]) -> None:
    ko = tiny_ko([f"{name}={value}" for name, value in entries.items()])
    path = tmp_path / "mock.ko"
    path.write_bytes(ko)
    told = subprocess.run(
        ["modinfo", "-0", str(path)], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    printed = dict(entry.split("=", 1) for entry in told[1:] if entry)  # the first one is the file's name
    assert {name: [value] for name, value in printed.items()} == read_modinfo(ko)


@pytest.mark.skipif(shutil.which("modinfo") is None, reason="modinfo (kmod) is not installed")
def test_the_old_trailer_names_its_signer_as_modinfo_says(tmp_path: Path) -> None:
    ko = append_signature(
        tiny_ko(["depends="]), signer=b"Magrathea", key_id=b"\x0a\x0b", signature=bytes(16), id_type=1
    )
    path = tmp_path / "mock.ko.xz"
    path.write_bytes(lzma.compress(ko))
    told = subprocess.run(
        ["modinfo", "-F", "signer", str(path)], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = read_signature(path.read_bytes())
    assert found is not None
    assert found.signer == told == "Magrathea"


@pytest.mark.skipif(
    shutil.which("modinfo") is None or shutil.which("openssl") is None, reason="needs modinfo and openssl"
)
@pytest.mark.parametrize(("words", "digest"), [([], "sha256"), (["-keyid"], "sha512")])
def test_the_key_and_the_digest_of_a_signature_are_modinfos(
    tmp_path: Path, words: list[str], digest: str
) -> None:
    key, certificate, content = tmp_path / "key", tmp_path / "certificate", tmp_path / "content"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Magrathea"]
    made = [*request, "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)
    content.write_bytes(tiny_ko(["depends="]))
    # the options of the kernel's own scripts/sign-file
    sign = ["openssl", "cms", "-sign", "-binary", "-nocerts", "-noattr", "-outform", "DER", "-md", digest]
    files = ["-in", content, "-signer", certificate, "-inkey", key]
    message = subprocess.run([*sign, *words, *files], check=True, capture_output=True).stdout
    path = tmp_path / "mock.ko"
    path.write_bytes(append_signature(content.read_bytes(), signature=message))

    def told(field: str) -> str:
        done = subprocess.run(["modinfo", "-F", field, str(path)], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    found = read_signature(path.read_bytes())
    assert found is not None
    assert found.digest == digest
    if not words:  # kmod reads the issuer and serial number only
        assert told("sig_hashalgo") == digest
        assert found.key_id.hex(":").upper() == told("sig_key")
        assert found.signer == told("signer") == "Magrathea"
    assert len(found.key_id) in (19, 20)
    assert without_signature(path.read_bytes()) == content.read_bytes()
