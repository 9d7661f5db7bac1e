"""A public key that a vendor's repository publishes itself, taken where it is the one that is known.

NVIDIA's keys are in no distribution. What is known of one is the sum of its file, or its fingerprint
(RFC 9580, section 5.5.4.2), which is made from the key and its date alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.discover.signature import Untrusted, dearmored
from driverforge_build.matrix.repository import Repository
from driverforge_build.ports import Downloads, NotThere
from driverforge_oci.transport import without_secrets

_PUBLIC_KEY = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedKey:
    """A key's path below its repository's address. `sha256` is that of its text without the line `Version:`,
    which names the program that wrote it; `fingerprint` that of the only key in it. One of them is ''.
    """

    path: str
    sha256: str
    fingerprint: str

    def is_known(self, text: bytes) -> bool:
        if self.fingerprint:
            return fingerprints(text) == [self.fingerprint]
        return _sha256(text) == self.sha256


def published_key(repository: Repository) -> PublishedKey | None:
    """The key that a row names."""
    if not repository.key:
        return None
    return PublishedKey(
        path=repository.key, sha256=repository.key_sha256, fingerprint=repository.key_fingerprint
    )


@contextmanager
def with_published(
    downloads: Downloads, address: Callable[[str], str], keyrings: tuple[Path, ...], key: PublishedKey | None
) -> Iterator[tuple[Path, ...]]:
    """The keyrings, and the key that the repository publishes. `address` is where a path of its is.

    Raises Untrusted where it is another key than the known one.
    """
    text = optional_document(downloads, address(key.path)) if key else None
    if key is None or text is None:
        yield keyrings
        return
    if not key.is_known(text):
        known = f"sha256 {_sha256(text)}, known is {key.sha256}"
        if key.fingerprint:
            known = f"fingerprint {' '.join(fingerprints(text)) or 'of none'}, known is {key.fingerprint}"
        raise Untrusted(
            f"{key.path} is not the key that signs this repository",
            details=[without_secrets(address(key.path)), known],
            resolution="use another mirror; if its owner has a new key: `key_sha256:` or `key_fingerprint:` "
            "of its row",
        )
    with TemporaryDirectory(prefix="driverforge-key-") as folder:
        (file := Path(folder, "key.asc")).write_bytes(text)
        yield (*keyrings, file)


def optional_document(downloads: Downloads, url: str) -> bytes | None:
    try:
        return downloads.document(url)
    except NotThere:
        return None


def fingerprints(text: bytes) -> list[str]:
    """The fingerprints of the keys in an armored text, without subkeys; none of what cannot be read."""
    try:
        return [
            # version 4: what the packet is framed by, and the packet
            hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
            .hexdigest()
            .upper()
            for tag, body in _packets(b"".join(dearmored(text)))
            if tag == _PUBLIC_KEY
        ]
    except (ValueError, OverflowError, IndexError):
        return []


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and body of each packet (RFC 9580, section 4.2). Raises ValueError, IndexError."""
    while data:
        head = data[0]
        if not head & 0x80:
            raise ValueError("not a packet")
        if head & 0x40:
            tag, (length, begin) = head & 0x3F, _new_length(data)
        else:
            octets = 1 << (head & 3)
            tag, length, begin = (head >> 2) & 0xF, int.from_bytes(data[1 : 1 + octets], "big"), 1 + octets
        yield tag, data[begin : begin + length]
        data = data[begin + length :]


def _new_length(data: bytes) -> tuple[int, int]:
    """A length of the new format, and where the body begins; keys have no partial ones."""
    if data[1] < 192:
        return data[1], 2
    if data[1] < 224:
        return ((data[1] - 192) << 8) + data[2] + 192, 3
    if data[1] == 255:
        return int.from_bytes(data[2:6], "big"), 6
    raise ValueError("a partial length")


def _sha256(text: bytes) -> str:
    lines = text.splitlines(keepends=True)
    return hashlib.sha256(b"".join(line for line in lines if not line.startswith(b"Version"))).hexdigest()
