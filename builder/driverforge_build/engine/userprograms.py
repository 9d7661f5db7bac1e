"""Programs of the user's that sign and verify: openssl, cosign, pkcs11-tool, a company's own.

All are run in one way. What they are to read is on standard input, what it is about in the environment. They
have PATIENCE_S, and exit status 75 says that the same may work later, as silence does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_build.engine.process import Said, converse
from driverforge_build.ports import ModuleSigner, ToSign
from driverforge_core.errors import CommandFailed, DriverforgeError, TemporaryFailure, Unavailable
from driverforge_core.modsign import plain_signature

PATIENCE_S = 300.0
"""A key may lie in a service that is far away, or wait for somebody's finger."""
_LINES = 20
_STAYS = "what is in the registry stays there; run the same command again, and only the rest is done"
_SIGNATURE = "the digest is on its standard input; the signature has to be on its standard output"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProgram:
    """`option` named it, `resolution` is what to do when it fails, a `package` of Debian's has it.

    No message has its arguments: one may be a secret, and a CI log is read by more people than a list of
    processes.
    """

    option: str
    argv: Sequence[str]
    resolution: str
    package: str = ""
    patience: float = PATIENCE_S
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.argv[0]} of {self.option}"

    def converse(self, given: bytes) -> Said:
        """What it says, whatever its exit status is. Raises Unavailable, TemporaryFailure."""
        try:
            return converse(self.argv, given, environment=self.told, patience=self.patience)
        except TimeoutError as error:
            raise TemporaryFailure(
                f"{self.name} did not end in {self.patience:g} s",
                details=["it was stopped"],
                resolution=f"does it ask for a password, or wait for a service? {self.resolution}",
            ) from error
        except OSError as error:
            raise Unavailable(
                f"{self.name} cannot be started: {error.strerror}",
                resolution=f"apt-get install {self.package}"
                if self.package
                else f"install it, or correct {self.option}; {self.resolution}",
            ) from error

    def output(self, given: bytes, purpose: str) -> bytes:
        """What it prints. Raises CommandFailed, and TemporaryFailure for status 75, where it fails."""
        said = self.converse(given)
        if said.status:
            raise self.failed(said, purpose)
        return said.output

    def failed(self, said: Said, purpose: str) -> DriverforgeError:
        kind = TemporaryFailure if said.status == os.EX_TEMPFAIL else CommandFailed
        return kind(
            f"{self.name} exited {said.status}" if said.status else f"{self.name} printed nothing",
            details=[f"it was to {purpose}", *last_words(said)],
            resolution=self.resolution,
        )


def last_words(said: Said) -> list[str]:
    return (said.errors or said.output.decode(errors="replace")).splitlines()[-_LINES:]


def command_signer(argv: Sequence[str], *, patience: float = PATIENCE_S) -> ModuleSigner:
    """A program that is given a digest, and told the module's file."""

    def sign(what: ToSign) -> bytes:
        told = {
            "DRIVERFORGE_MODULE": str(what.module),
            "DRIVERFORGE_HASH": what.algorithm,
            "DRIVERFORGE_DIGEST": what.digest.hex(),
        }
        program = UserProgram(
            option="--sign-command", argv=argv, resolution=_SIGNATURE, patience=patience, told=told
        )
        return program.output(what.digest, f"sign {what.module.name}")

    return sign


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSigner:
    """`argv` gets what is to be signed on standard input, and prints a signature: its bytes, or base64.

    DRIVERFORGE_IMAGE and DRIVERFORGE_PREDICATE_TYPE tell it what the statement is about.
    """

    argv: Sequence[str]
    patience: float = PATIENCE_S

    def sign(self, content: bytes, *, image: str, predicate: str) -> bytes:
        told = {"DRIVERFORGE_IMAGE": image, "DRIVERFORGE_PREDICATE_TYPE": predicate}
        program = UserProgram(
            option="--signer", argv=self.argv, resolution=_STAYS, patience=self.patience, told=told
        )
        printed = program.output(content, f"sign {predicate} of {image}")
        if signature := plain_signature(printed):
            return signature
        raise CommandFailed(
            f"{program.name} printed no signature",
            details=[f"{len(printed)} bytes on standard output: {printed[:80]!r}"],
            resolution="it has to print one signature to standard output, as bytes or base64, and all else "
            f"to standard error; {_STAYS}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandImageSigner:
    """`argv` gets REPOSITORY@DIGEST as its last argument and does the rest, as `cosign sign` does."""

    argv: Sequence[str]

    def sign_image(self, image: str) -> None:
        program = UserProgram(option="--image-signer", argv=[*self.argv, image], resolution=_STAYS)
        program.output(b"", f"sign {image}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandVerifier:
    """`argv` gets a file with the signature as its last argument, and what was signed on standard input."""

    argv: Sequence[str]

    def objection(self, content: bytes, signature: bytes) -> str:
        with TemporaryDirectory(prefix="driverforge-") as folder:
            file = Path(folder, "signature")
            file.write_bytes(signature)
            program = UserProgram(
                option="--verifier",
                argv=[*self.argv, str(file)],
                resolution="without it nothing is verified; run the same command again",
            )
            said = program.converse(content)
        if not said.status:
            return ""
        return " ".join([f"{self.argv[0]} exited {said.status}:", *last_words(said)[-1:]])
