"""Signatures of modules as openssl makes and reads them: taken where a kernel would, refused where not."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.certificate import digest_info, parse_certificate
from driverforge_core.cms import signed_by
from driverforge_core.errors import DriverforgeError, InputError, Unsupported
from driverforge_core.modinfo import read_signature, with_signature, without_signature
from driverforge_core.modsign import check_module, message_of
from support.process import run
from support.samples.signingkeys import SigningKey, bare, cms, signing_key
from support.samples.tinyko import append_signature, tiny_ko

KO = tiny_ko(["version=580.178.04", "vermagic=6.8.0-106-generic SMP", "depends="])
ALL = ("sha512", "sha256", "sha384")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return signing_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return signing_key(tmp_path_factory.mktemp("other"))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia.ko"
    path.write_bytes(KO)
    return path


def told(file: Path, *words: str) -> str:
    return run("openssl", "x509", "-in", file, "-noout", *words).stdout.strip()


@pytest.mark.parametrize(
    ("options", "subject", "kind"),
    [
        ((), "/CN=Site modules", "rsa:4096"),
        ((), "/O=Site/CN=Site modules/emailAddress=root@site", "rsa:2048"),
        (("-set_serial", "0xc3d4"), "/C=DE/CN=Site modules", "rsa:2048"),
    ],
    ids=["long", "organisation", "serial"],
)
def test_a_certificate_is_read_as_openssl_reads_it(
    tmp_path: Path, options: tuple[str, ...], subject: str, kind: str
) -> None:
    file = signing_key(tmp_path, *options, subject=subject, kind=kind).file
    found = parse_certificate(file.read_bytes())
    assert found.name == "Site modules"
    shown = told(file, "-ext", "subjectKeyIdentifier").splitlines()[-1].strip()
    assert found.key_id == shown.replace(":", "").lower()
    assert int.from_bytes(found.serial, "big") == int(told(file, "-serial").partition("=")[2], 16)
    assert told(file, "-modulus") == f"Modulus={found.modulus:X}"
    assert found.not_after.strftime("%b %e %H:%M:%S %Y GMT") == told(file, "-enddate").partition("=")[2]
    as_der = tmp_path / "der"
    run("openssl", "x509", "-in", file, "-outform", "DER", "-out", as_der)
    assert parse_certificate(as_der.read_bytes()) == found


def test_a_file_with_the_key_beside_the_certificate_gives_the_certificate_alone(key: SigningKey) -> None:
    both = key.key.read_bytes() + key.file.read_bytes()
    assert parse_certificate(both) == key.certificate


def test_certificates_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    curve = signing_key(tmp_path, kind="ec -pkeyopt ec_paramgen_curve:P-384")
    with pytest.raises(Unsupported, match="key is not RSA"):
        parse_certificate(curve.file.read_bytes())
    for wrong in (
        b"",
        b"hello",
        curve.key.read_bytes(),
        parse_certificate(signing_key(tmp_path).file.read_bytes()).der[:-9],
    ):
        with pytest.raises(InputError, match=r"no X\.509 certificate"):
            parse_certificate(wrong)


@pytest.mark.parametrize("digest", ALL)
def test_a_key_services_signature_becomes_the_message_that_openssl_makes(
    module: Path, key: SigningKey, digest: str
) -> None:
    wanted = cms(module, key, digest=digest)
    signature = bare(module, key, digest=digest)
    for answer in (signature, base64.b64encode(signature) + b"\n", base64.encodebytes(signature), wanted):
        assert message_of(answer, KO, key.certificate, ALL) == wanted


def test_openssl_verifies_what_was_made(module: Path, tmp_path: Path, key: SigningKey) -> None:
    made = tmp_path / "made.p7s"
    made.write_bytes(message_of(bare(module, key), KO, key.certificate, ALL))
    words = ["-inform", "DER", "-in", made, "-content", module, "-certfile", key.file, "-out", "/dev/null"]
    checked = run("openssl", "cms", "-verify", "-binary", "-noverify", *words, check=False)
    assert checked.status == 0, checked.stderr


def test_a_message_that_names_the_key_identifier_is_taken(module: Path, key: SigningKey) -> None:
    message = cms(module, key, "-keyid")
    assert message_of(message, KO, key.certificate, ALL) == message
    check_module(with_signature(KO, message), key.certificate, ALL)


def test_a_signed_module_is_the_module_and_its_signature(module: Path, key: SigningKey) -> None:
    message = cms(module, key, digest="sha512")
    signed = with_signature(KO, message)
    check_module(signed, key.certificate, ALL)
    assert without_signature(signed) == KO
    found = read_signature(signed)
    assert found is not None
    assert (found.signer, found.digest) == ("Site modules", "sha512")


Make = Callable[[Path, SigningKey, SigningKey], bytes]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda ko, key, other: b"", "the signer gave no signature"),
        (lambda ko, key, other: b"denied\n", r"7 bytes: b'denied\n'"),
        (lambda ko, key, other: bare(ko, other), "not made by the certificate's key"),
        (lambda ko, key, other: bare(ko, key)[:-1], "not made by the certificate's key"),
        (lambda ko, key, other: bare(ko, key, "-sigopt", "rsa_padding_mode:pss"), "PKCS#1 v1.5"),
        (lambda ko, key, other: bare(ko, key, digest="sha1"), "with sha256, sha384 or sha512"),
        (lambda ko, key, other: bare(ko, key, digest="sha384"), "is over sha384, which this kernel may not"),
        (lambda ko, key, other: cms(ko, other), "names another certificate"),
        (lambda ko, key, other: cms(ko, key)[:100], "is no CMS message"),
        (lambda ko, key, other: cms(ko, key, kernels=False), "over attributes"),
        (lambda ko, key, other: cms(ko, key, "-nodetach"), "contains what it signs"),
        (
            lambda ko, key, other: cms(ko, key, "-signer", str(other.file), "-inkey", str(other.key)),
            "has 2 signatures",
        ),
    ],
)
def test_what_a_kernel_would_not_take_is_refused(
    module: Path, key: SigningKey, other: SigningKey, make: Make, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        message_of(make(module, key, other), KO, key.certificate, ("sha512", "sha256"))
    assert said in caught.value.render()


def test_a_signature_over_something_else_names_both_digests(module: Path, key: SigningKey) -> None:
    for answer in (bare(module, key), cms(module, key)):
        with pytest.raises(InputError, match="over something else than this module") as caught:
            message_of(answer, KO + b"\0", key.certificate, ALL)
        signed, actual = caught.value.details
        assert signed.startswith("signed: sha256:")
        assert signed.rpartition(":")[2] != actual.rpartition(":")[2]


def test_a_module_that_was_changed_after_it_was_signed_is_refused(module: Path, key: SigningKey) -> None:
    signed = with_signature(KO, cms(module, key))
    with pytest.raises(InputError, match="over something else"):
        check_module(signed.replace(b"580.178", b"580.179"), key.certificate, ALL)
    with pytest.raises(InputError, match="has no signature"):
        check_module(KO, key.certificate, ALL)
    with pytest.raises(InputError, match="no CMS message"):
        check_module(append_signature(KO, signature=b"old", id_type=1), key.certificate, ALL)


def test_no_byte_of_the_signature_can_be_another_one(module: Path, key: SigningKey) -> None:
    """The padding counts too: a forged one is the classic hole of home-made verifiers."""
    signature = bare(module, key)
    for place in range(0, len(signature), 5):
        changed = signature[:place] + bytes([signature[place] ^ 1]) + signature[place + 1 :]
        assert key.certificate.recover(changed) is None


@given(data=st.data())
def test_a_damaged_certificate_is_our_error(key: SigningKey, data: st.DataObject) -> None:
    whole = key.certificate.der
    place = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    damaged = whole[:place] + bytes([data.draw(st.integers(min_value=0, max_value=255))]) + whole[place + 1 :]
    with suppress(DriverforgeError):
        parse_certificate(damaged).recover(bytes(256))


def test_a_message_that_names_another_digest_than_was_signed_is_refused(
    module: Path, key: SigningKey
) -> None:
    found = key.certificate
    lying = signed_by(issuer=found.issuer, serial=found.serial, digest="sha512", signature=bare(module, key))
    with pytest.raises(InputError, match="the message says sha512, and the signature is over sha256"):
        message_of(lying, KO, found, ALL)


def test_a_signature_is_its_whole_padding_in_its_whole_length(key: SigningKey) -> None:
    """With the exponent 1 a signature is what it recovers to, so that forgers' tricks can be written down."""
    easy = replace(key.certificate, modulus=(1 << 2047) + 1, exponent=1)
    info = digest_info("sha256", bytes(32))
    good = b"\x00\x01" + b"\xff" * (256 - 3 - len(info)) + b"\x00" + info
    assert easy.recover(good) == ("sha256", bytes(32))
    short = b"\x00\x01" + b"\xff" * 8 + b"\x00"
    for forged in (
        short + info + bytes(256 - len(short) - len(info)),  # behind it what an attacker may choose
        short + bytes(256 - len(short) - len(info)) + info,
        b"\x00\x02" + good[2:],
        b"\x00" + good,
        good[1:],
        (int.from_bytes(good, "big") + easy.modulus).to_bytes(256, "big"),
    ):
        assert easy.recover(forged) is None
