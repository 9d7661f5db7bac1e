"""Who signed: several signatures at once, and keys of this machine's user, with real gpg and gpgv."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_build.discover.signature import Untrusted, verify, verify_detached
from support.process import missing, run
from support.samples.aptrepo import SigningKey, signing_key

pytestmark = pytest.mark.skipif(
    bool(missing("gpg", "gpgv")), reason=f"not installed: {', '.join(missing('gpg', 'gpgv'))}"
)
TEXT = b"what is signed\n"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "k") as made:
        yield made


@pytest.fixture(scope="module")
def other_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "other") as made:
        yield made


@pytest.fixture(scope="module")
def old_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    key = SigningKey.make(tmp_path_factory.mktemp("key") / "old", expires="30d", clock="20200101T000000")
    yield key
    key.destroy()


def signature(key: SigningKey, text: bytes, folder: Path) -> bytes:
    """A binary one: one behind another is a document with two."""
    (document := folder / "document").write_bytes(text)
    clock = ("--faked-system-time", key.clock) if key.clock else ()
    run("gpg", "--homedir", key.home, "--batch", "--yes", *clock, "--detach-sign", document)
    return document.with_name("document.sig").read_bytes()


def test_all_whose_signature_is_good_are_named(
    key: SigningKey, other_key: SigningKey, tmp_path: Path
) -> None:
    both = signature(key, TEXT, tmp_path) + signature(other_key, TEXT, tmp_path)
    found = verify_detached(TEXT, both, [key.keyring, other_key.keyring], name="repomd.xml")
    assert found == tuple(sorted((key.fingerprint, other_key.fingerprint)))


def test_one_bad_signature_spoils_a_good_one(key: SigningKey, other_key: SigningKey, tmp_path: Path) -> None:
    both = signature(key, TEXT, tmp_path) + signature(other_key, b"another text\n", tmp_path)
    with pytest.raises(Untrusted, match="was changed after it was signed"):
        verify_detached(TEXT, both, [key.keyring, other_key.keyring], name="repomd.xml")


def test_an_expired_key_beside_a_good_one_does_not_count(
    key: SigningKey, old_key: SigningKey, tmp_path: Path
) -> None:
    both = signature(key, TEXT, tmp_path) + signature(old_key, TEXT, tmp_path)
    found = verify_detached(TEXT, both, [key.keyring, old_key.keyring], name="repomd.xml")
    assert found == (key.fingerprint,)


def test_the_users_own_keys_do_not_count(
    key: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gpgv takes them where it is given no keyring."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "trustedkeys.gpg").write_bytes(key.keyring.read_bytes())
    monkeypatch.setenv("GNUPGHOME", str(home))
    with pytest.raises(Untrusted):
        verify(key.clearsign("x\n").encode(), [], name="InRelease")


def test_an_armored_keyring_of_several_blocks(key: SigningKey, other_key: SigningKey, tmp_path: Path) -> None:
    """Base64 without padding goes on into the checksum's line, so that the first key has 3n bytes."""
    for number in range(9):
        first = SigningKey.make(tmp_path / str(number), name="x" * (5 + number))
        first.destroy()
        if len(data := first.keyring.read_bytes()) % 3 == 0:
            break
    head, tail = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n", "\n-----END PGP PUBLIC KEY BLOCK-----\n"
    block = f"{head}{base64.b64encode(data).decode()}\n=abcd{tail}"
    (ring := tmp_path / "site.asc").write_text(block + key.armored.read_text())
    assert verify(key.clearsign("x\n").encode(), [ring], name="InRelease").fingerprints == (key.fingerprint,)
