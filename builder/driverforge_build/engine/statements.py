"""Signers and verifiers that are programs of the user's: openssl, cosign, a company's own."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.engine.process import Said, converse
from driverforge_core.errors import CommandFailed, DriverforgeError, TemporaryFailure, Unavailable

PATIENCE_S = 120.0
"""A key may lie in a service that is far away, or wait for somebody's finger."""
_LONGEST = 64 << 10
_SHORTEST = 32
_LINES = 20
_STAYS = "what is in the registry stays there; run the same command again, and only the rest is done"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSigner:
    """`argv` gets what is to be signed on standard input, and prints a signature: its bytes, or base64.

    DRIVERFORGE_IMAGE and DRIVERFORGE_PREDICATE_TYPE tell it what the statement is about. Exit status 75 says
    that the same may work later.
    """

    argv: Sequence[str]
    patience: float = PATIENCE_S

    def sign(self, content: bytes, *, image: str, predicate: str) -> bytes:
        told = {"DRIVERFORGE_IMAGE": image, "DRIVERFORGE_PREDICATE_TYPE": predicate}
        said = _talk("--signer", self.argv, content, told, self.patience)
        if said.status:
            raise _failed(self.argv[0], said, [f"it was to sign {predicate} of {image}"])
        signature = _signature(said.output)
        if signature is None:
            raise CommandFailed(
                f"the signer {self.argv[0]} printed no signature",
                details=[
                    f"{len(said.output)} bytes on standard output: {said.output[:80]!r}",
                    *_last(said.errors),
                ],
                resolution="it has to print one signature to standard output, as bytes or base64, and all "
                f"else to standard error; {_STAYS}",
            )
        return signature


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandImageSigner:
    """`argv` gets REPOSITORY@DIGEST as its last argument and does the rest, as `cosign sign` does.

    Exit status 75 says that the same may work later.
    """

    argv: Sequence[str]
    patience: float = PATIENCE_S

    def sign_image(self, image: str) -> None:
        said = _talk("--image-signer", [*self.argv, image], b"", {}, self.patience)
        if said.status:
            raise _failed(self.argv[0], said, [f"it was to sign {image}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandVerifier:
    """`argv` gets a file with the signature as its last argument, and what was signed on standard input."""

    argv: Sequence[str]
    patience: float = PATIENCE_S

    def objection(self, content: bytes, signature: bytes) -> str:
        with TemporaryDirectory(prefix="driverforge-") as folder:
            file = Path(folder, "signature")
            file.write_bytes(signature)
            argv = [*self.argv, str(file)]
            said = _talk("--verifier", argv, content, {}, self.patience)
        if not said.status:
            return ""
        return " ".join([f"{self.argv[0]} exited {said.status}:", *_last(_told(said))[-1:]])


def _failed(program: str, said: Said, details: Sequence[str]) -> DriverforgeError:
    kind = TemporaryFailure if said.status == os.EX_TEMPFAIL else CommandFailed
    return kind(
        f"the signer {program} exited {said.status}",
        details=[*details, *_last(_told(said))],
        resolution=_STAYS,
    )


def _told(said: Said) -> str:
    return said.errors or said.output.decode(errors="replace")


def _talk(
    option: str, argv: Sequence[str], content: bytes, environment: Mapping[str, str], patience: float
) -> Said:
    try:
        return converse(argv, content, environment=environment, patience=patience)
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise CommandFailed(
                f"{argv[0]} of {option} did not end in {patience:g} s",
                details=["it was stopped"],
                resolution=f"does it ask for a password, or wait for a service? {_STAYS}",
            ) from error
        raise Unavailable(
            f"{argv[0]} of {option} cannot be started: {error.strerror}",
            resolution=f"install it, or correct {option}; {_STAYS}",
        ) from error


def _signature(said: bytes) -> bytes | None:
    """The signature that a program printed. Text that is no base64 is a message, or a file in PEM."""
    if _is_text(said):
        try:
            # base64(1) breaks lines
            said = base64.b64decode(b"".join(said.split()), validate=True)
        except (binascii.Error, ValueError):
            return None
    return said if _SHORTEST <= len(said) <= _LONGEST else None


def _is_text(said: bytes) -> bool:
    try:
        text = said.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def _last(said: str) -> list[str]:
    return said.splitlines()[-_LINES:]
