"""Options that say who signs kernel modules, statements and images, and who verifies."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from driverforge_build.commands.shared import adapters
from driverforge_build.commands.shared.options import Command, gathered

if TYPE_CHECKING:
    from driverforge_build.app.signing import Signing
    from driverforge_build.ports import ModuleSigner


def program(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """A click callback: the words of a command that is run without a shell; none where it is not given."""
    if value is None:
        return ()
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}", param=parameter) from error
    if not words:
        raise click.BadParameter("it names no program", param=parameter)
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningWords:
    """What the command line says about signing."""

    key: str
    command: tuple[str, ...]
    signatures: Path | None
    unsigned_to: Path | None

    def signing(self, certificate: Path | None, folder: Path, *, planning: bool) -> Signing | None:
        """Who signs; None where nobody does. The key is tried, so that what is wrong is said at once.

        Raises UsageError, and what a ModuleSigner raises.
        """
        ways = {
            "--sign-key": self.key,
            "--sign-command": self.command,
            "--signatures": self.signatures,
            "--unsigned-to": self.unsigned_to,
        }
        given = [name for name, value in ways.items() if value]
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)}: choose one")
        if given and certificate is None:
            raise click.UsageError(
                f"{given[0]} needs --sign-certificate, the certificate of the key that signs"
            )
        if not given or planning or certificate is None:
            return None
        from driverforge_build.app import signing
        from driverforge_build.engine.process import require_program
        from driverforge_build.engine.signers import key_signer
        from driverforge_build.engine.userprograms import command_signer
        from driverforge_build.render.sitecertificate import read_certificate

        read = read_certificate(certificate)
        signing.check_date(read, datetime.now(timezone.utc))
        if self.unsigned_to:
            return None
        signer: ModuleSigner = signing.beside
        if self.key:
            signer = key_signer(self.key)
            # a site's own program may be one that a person has to say yes to
            signing.try_signer(signer, read)
        if self.command:
            require_program(self.command[0], "--sign-command")
            signer = command_signer(self.command)
        return signing.Signing(
            certificate=read, signer=signer, folder=folder / "signing", given=self.signatures
        )


def _signing(
    *, sign_key: str, sign_command: tuple[str, ...], signatures: Path | None, unsigned_to: Path | None
) -> SigningWords:
    source = click.get_current_context().get_parameter_source
    ways = ("sign_key", "sign_command", "signatures", "unsigned_to")
    # a pipeline's environment is for all its jobs, and one of them may say otherwise
    typed = {way for way in ways if source(way) is ParameterSource.COMMANDLINE} or {*ways}
    return SigningWords(
        key=sign_key if "sign_key" in typed else "",
        command=sign_command if "sign_command" in typed else (),
        signatures=signatures if "signatures" in typed else None,
        unsigned_to=unsigned_to if "unsigned_to" in typed else None,
    )


signing_options = gathered(
    "signing",
    _signing,
    click.option(
        "--sign-key",
        default="",
        metavar="FILE|pkcs11:URI",
        envvar="DRIVERFORGE_SIGN_KEY",
        help="Private key that signs modules; no build sees it. Its passphrase, or the token's PIN, is in "
        "the environment: KBUILD_SIGN_PIN.",
    ),
    click.option(
        "--sign-command",
        metavar="COMMAND",
        callback=program,
        envvar="DRIVERFORGE_SIGN_COMMAND",
        help="A program that signs: it reads a digest and prints a signature, CMS or bare, as bytes or in "
        "base64. It is told DRIVERFORGE_MODULE, DRIVERFORGE_HASH and DRIVERFORGE_DIGEST. Run without a "
        "shell.",
    ),
    click.option(
        "--signatures",
        type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True),
        metavar="DIR",
        help="What --unsigned-to wrote, with a signature beside each module: NAME.ko.p7s (CMS, as "
        "`sign-file -d` writes it) or NAME.ko.sig (bare, as key services give it). Nothing is compiled.",
    ),
    click.option(
        "--unsigned-to",
        type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
        metavar="DIR",
        help="Make no images: write their bare modules to DIR/CELL/TYPE, and lists of the digests to sign, "
        "for somebody else.",
    ),
)


def _attest(
    *, attesting: bool, signer: tuple[str, ...], image_signer: tuple[str, ...] = (), builder_id: str = ""
) -> adapters.Attest | None:
    for name in ("signer", "image_signer", "builder_id"):
        source = click.get_current_context().get_parameter_source(name)
        if source is ParameterSource.COMMANDLINE and not attesting:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --attest")
    if not attesting:
        return None
    return adapters.Attest(signer=signer, image_signer=image_signer, builder=builder_id)


attest_options = gathered(
    "attest",
    _attest,
    click.option(
        "--attest",
        "attesting",
        is_flag=True,
        help="Attach to each image in the registry what is known of it, as OCI referrers.",
    ),
    click.option(
        "--signer",
        metavar="COMMAND",
        callback=program,
        envvar="DRIVERFORGE_SIGNER",
        help="With --attest, sign statements by this program: it reads what is to be signed on standard "
        "input, and prints the signature. Run without a shell.",
    ),
)
"""The command gets None without --attest."""


def origin_options(function: Command) -> Command:
    """--builder-id and --image-signer, for commands with --attest that bring images to a registry."""
    function = click.option(
        "--image-signer",
        metavar="COMMAND",
        callback=program,
        envvar="DRIVERFORGE_IMAGE_SIGNER",
        help="With --attest, sign each image that has no signature by this program: it gets "
        "REPOSITORY@DIGEST as its last argument, as `cosign sign` does. Run without a shell.",
    )(function)
    return click.option(
        "--builder-id",
        default="",
        envvar="DRIVERFORGE_BUILDER_ID",
        metavar="URI",
        help="With --attest, the builder that a provenance names. Default: what GitHub's or GitLab's "
        "pipeline says.",
    )(function)


verifier_option = click.option(
    "--verifier",
    metavar="COMMAND",
    callback=program,
    envvar="DRIVERFORGE_VERIFIER",
    help="Believe statements alone whose signature this program accepts: it gets a file with the "
    "signature as its last argument, and what was signed on standard input. Run without a shell.",
)
