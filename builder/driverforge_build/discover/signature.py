"""Check who signed a repository's metadata.

`gpgv` reads apt's clear-signed InRelease, and only what it says was signed is read on; or the detached
signature of RPM's repomd.xml.
"""

from __future__ import annotations

import base64
import binascii
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import InputError, Unavailable

_ARMOR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"


class Untrusted(Unavailable):
    """The signature is missing, damaged, or by a key that is not in the keyring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A signed text and the fingerprints (40 hex digits, primary keys) of those who signed it."""

    text: str
    fingerprints: tuple[str, ...]


def verify(signed: bytes, keyrings: Sequence[Path], *, name: str) -> Signed:
    """The text inside a clear-signed document.

    apt's own rule: at least one key of the keyrings signed it, and no signature is bad. A key that is expired
    or revoked counts as none. `keyrings` are binary or armored files. `name` is the document's name in
    messages. Raises Untrusted, Unavailable where there is no gpgv, InputError for a keyring that cannot be
    read.
    """
    with tempfile.TemporaryDirectory(prefix="driverforge-gpgv-") as folder:
        (document := Path(folder, "InRelease")).write_bytes(signed)
        text = Path(folder, "text")
        fingerprints = _signers(["--output", str(text), str(document)], keyrings, Path(folder), name)
        return Signed(text=text.read_text(encoding="utf-8", errors="replace"), fingerprints=fingerprints)


def verify_detached(
    document: bytes, signature: bytes, keyrings: Sequence[Path], *, name: str
) -> tuple[str, ...]:
    """The fingerprints of those who signed a document, by the rule of `verify` and with its errors."""
    with tempfile.TemporaryDirectory(prefix="driverforge-gpgv-") as folder:
        (signed := Path(folder, "document")).write_bytes(document)
        (apart := Path(folder, "signature")).write_bytes(signature)
        return _signers([str(apart), str(signed)], keyrings, Path(folder), name)


def _signers(files: Sequence[str], keyrings: Sequence[Path], folder: Path, name: str) -> tuple[str, ...]:
    """Ask gpgv about files, with a home of its own in a folder."""
    if (gpgv := shutil.which("gpgv")) is None:
        raise Unavailable(
            f"cannot check who signed {name}: there is no gpgv on this machine",
            resolution="install it (apt-get install gpgv, dnf install gnupg2, zypper install gpg2) and run "
            "the command again",
        )
    rings = [_binary(keyring, folder / f"{number}.gpg") for number, keyring in enumerate(keyrings)]
    arguments = [argument for ring in rings for argument in ("--keyring", str(ring))]
    command = [gpgv, "--homedir", str(folder), "--status-fd", "1", *arguments, *files]
    run = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    status = [line.split()[1:] for line in run.stdout.splitlines() if line.startswith("[GNUPG:] ")]
    fingerprints = set(_good_signers(status))
    if not fingerprints or any(words[0] == "BADSIG" for words in status):
        raise _untrusted(name, keyrings, status, run.stderr)
    return tuple(sorted(fingerprints))


def _good_signers(status: Sequence[Sequence[str]]) -> Iterator[str]:
    """Fingerprints of primary keys whose signature is good.

    gpgv says VALIDSIG, and exits 0, for expired and revoked keys too, so GOODSIG must have come before it.
    """
    good = False
    for words in status:
        if words[0] == "NEWSIG":
            good = False
        elif words[0] == "GOODSIG":
            good = True
        elif words[0] == "VALIDSIG" and good:
            yield words[-1]


def _binary(keyring: Path, copy: Path) -> Path:
    """gpgv reads binary keyrings only; apt's configuration may name armored ones."""
    try:
        data = keyring.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the keyring {keyring}: {error.strerror}",
            resolution="give the file with the repository's keys: --keyring FILE",
        ) from error
    if _ARMOR not in data:
        return keyring.absolute()
    try:
        copy.write_bytes(b"".join(dearmored(data)))
    except binascii.Error as error:
        raise InputError(
            f"the keyring {keyring} is damaged: {error}",
            resolution="take the repository's keys from where they are published: --keyring FILE",
        ) from None
    return copy


def dearmored(text: bytes) -> Iterator[bytes]:
    """The keys of each armored block in a text. Raises binascii.Error."""
    return map(_dearmored, text.split(_ARMOR)[1:])


def _dearmored(block: bytes) -> bytes:
    """RFC 9580 section 6.2: headers up to a blank line, base64, a checksum line that starts with '='."""
    lines = block.partition(b"-----END")[0].replace(b"\r", b"").split(b"\n")
    start = next((number for number, line in enumerate(lines) if number and not line.strip()), 0)
    return base64.b64decode(b"".join(line for line in lines[start:] if not line.startswith(b"=")))


def _untrusted(
    name: str, keyrings: Sequence[Path], status: Sequence[Sequence[str]], stderr: str
) -> Untrusted:
    missing = [words[1] for words in status if words[0] == "NO_PUBKEY"]
    expired = [words[1] for words in status if words[0] in ("EXPKEYSIG", "EXPSIG", "REVKEYSIG")]
    changed = any(words[0] == "BADSIG" for words in status)
    what = "was changed after it was signed" if changed else "is not signed by a key that is trusted here"
    details = [f"keyring: {keyring}" for keyring in keyrings] or ["no keyring"]
    details += [f"signed by a key that the keyrings do not have: {key}" for key in missing]
    details += [f"signed by a key that is expired or revoked: {key}" for key in expired]
    return Untrusted(
        f"{name} {what}",
        details=[*details, *stderr.strip().splitlines()],
        resolution="give the keyring of this repository with --keyring FILE; if it is the right one, do not "
        "use this mirror",
    )
