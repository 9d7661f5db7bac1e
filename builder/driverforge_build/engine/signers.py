"""What signs: a key in a file by openssl, one in a PKCS#11 token by pkcs11-tool, or a program of the site's.

All of them are given a digest and give a signature. The passphrase or PIN is in the environment as
KBUILD_SIGN_PIN, the name that the kernel's own sign-file uses, and never on a command line.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

from driverforge_build.engine import process
from driverforge_build.engine.process import Said
from driverforge_build.ports import ModuleSigner, ToSign
from driverforge_core.certificate import digest_info
from driverforge_core.errors import (
    CommandFailed,
    InputError,
    NotPermitted,
    TemporaryFailure,
    Unavailable,
)

PIN = "KBUILD_SIGN_PIN"
PATIENCE_S = 300.0
"""For a site's program, behind which somebody may have to press a button."""
_EXAMPLE = "pkcs11:token=site;object=modules?module-path=/usr/lib/softhsm/libsofthsm2.so"


def key_signer(where: str) -> ModuleSigner:
    """By a file, or by a token where that is a URI `pkcs11:`. Raises InputError for an incomplete one."""
    return (
        partial(_by_token, _token_words(where)) if where.startswith("pkcs11:") else partial(_by_file, where)
    )


def command_signer(words: Sequence[str], *, patience: float = PATIENCE_S) -> ModuleSigner:
    """By a program: the digest is on its standard input, the signature has to be on its standard output."""
    return partial(_by_command, words, patience)


def _by_file(file: str, what: ToSign) -> bytes:
    if not os.access(file, os.R_OK):
        raise InputError(
            f"the key {file} cannot be read",
            resolution="give --sign-key the file of the private key, or pkcs11:… for one in a token",
        )
    passphrase = f"env:{PIN}" if os.environ.get(PIN) else "pass:"
    words = ["openssl", "pkeyutl", "-sign", "-inkey", file, "-passin", passphrase]
    said = _run([*words, "-pkeyopt", f"digest:{what.algorithm}"], what.digest, package="openssl")
    if said.status == 0:
        return said.output
    if any(word in said.errors for word in ("bad decrypt", "wrong password", "empty password")):
        if os.environ.get(PIN):
            raise NotPermitted(f"the passphrase of {file} in {PIN} is wrong", resolution=f"set {PIN}")
        raise NotPermitted(f"{file} needs a passphrase", resolution=f"set {PIN} to it in the environment")
    raise CommandFailed(
        f"openssl cannot sign with {file}",
        details=said.errors.splitlines()[-4:],
        resolution="give an RSA private key in PEM or DER",
    )


def _token_words(uri: str) -> tuple[str, ...]:
    """The words for pkcs11-tool, of an URI (RFC 7512)."""
    path, _, query = uri.removeprefix("pkcs11:").partition("?")
    pairs = [part.partition("=") for part in [*path.split(";"), *query.split("&")] if part]
    # an id is bytes, and pkcs11-tool wants them in hexadecimal
    found = {
        name: unquote_to_bytes(value).hex() if name == "id" else unquote(value) for name, _, value in pairs
    }
    if "pin-value" in found:
        raise InputError(
            "the PIN is in the URI, where every process of the machine could read it",
            resolution=f"leave pin-value= out, and set {PIN} in the environment",
        )
    if not ("token" in found or "slot-id" in found) or not ("object" in found or "id" in found):
        raise InputError(
            "the PKCS#11 URI does not name a token and a key",
            details=[f"found: {' '.join(found) or 'nothing'}"],
            resolution=f"write it like {_EXAMPLE}",
        )
    module = found.get("module-path", "")
    if not Path(module).is_file():
        raise InputError(
            f"there is no PKCS#11 module {module}" if module else "the PKCS#11 URI names no module",
            resolution=f"name the library of your token: {_EXAMPLE}",
        )
    options = {
        "token": "--token-label",
        "slot-id": "--slot",
        "object": "--label",
        "id": "--id",
    }
    words = [word for name, option in options.items() if name in found for word in (option, found[name])]
    return ("pkcs11-tool", "--module", module, *words)


def _by_token(words: Sequence[str], what: ToSign) -> bytes:
    login = ["--login", "--pin", f"env:{PIN}"] if os.environ.get(PIN) else []
    # RSA-PKCS does the padding; what is padded is ours to write
    given = digest_info(what.algorithm, what.digest)
    said = _run([*words, *login, "--sign", "--mechanism", "RSA-PKCS"], given, package="opensc")
    if said.status == 0 and said.output:
        return said.output
    for word, error in _token_errors(words).items():
        if word in said.errors:
            raise error
    raise CommandFailed(
        "pkcs11-tool cannot sign",
        details=[f"command: {shlex.join(words)}", *said.errors.splitlines()[-4:]],
        resolution=""
        if login
        else f"keys are mostly shown to whoever has logged in: set {PIN} in the environment",
    )


def _token_errors(words: Sequence[str]) -> Mapping[str, Exception]:
    module = words[2]
    here = f"see what is there: pkcs11-tool --module {module} --list-slots"
    locked = "a token locks itself after a few wrong ones; its security officer unlocks it"
    return {
        "CKR_PIN_INCORRECT": NotPermitted(f"the token's PIN in {PIN} is wrong", resolution=locked),
        "CKR_PIN_LOCKED": NotPermitted("the token's PIN is locked", resolution=locked),
        "Failed to load pkcs11 module": Unavailable(
            f"the PKCS#11 module {module} cannot be loaded", resolution="install what it needs: ldd shows it"
        ),
        "No slot with": Unavailable("there is no such token", details=[shlex.join(words)], resolution=here),
        "No slots": Unavailable("the PKCS#11 module sees no token", resolution=here),
        "key not found": InputError(
            "the token has no such key, or shows it only to whoever has logged in",
            details=[shlex.join(words)],
            resolution=f"set {PIN} in the environment; names and ids are shown by "
            f"`pkcs11-tool --module {module} --login --list-objects`",
        ),
    }


def _by_command(words: Sequence[str], patience: float, what: ToSign) -> bytes:
    environment = {
        "DRIVERFORGE_MODULE": str(what.module),
        "DRIVERFORGE_HASH": what.algorithm,
        "DRIVERFORGE_DIGEST": what.digest.hex(),
    }
    try:
        said = process.converse(words, what.digest, environment=environment, patience=patience)
    except TimeoutError as error:
        raise TemporaryFailure(
            f"{words[0]}, which signs, says nothing for {patience:g} s", details=[shlex.join(words)]
        ) from error
    except OSError as error:
        raise Unavailable(f"{words[0]}, which signs, cannot be started: {error.strerror}") from error
    if said.status:
        # as our own steps say it
        passing = said.status == TemporaryFailure.exit_code
        raise (TemporaryFailure if passing else CommandFailed)(
            f"{words[0]}, which signs, exited {said.status}",
            details=[f"command: {shlex.join(words)}", *said.errors.splitlines()[-10:]],
            resolution="the digest is on its standard input; the signature has to be on its standard output",
        )
    return said.output


def _run(words: Sequence[str], given: bytes, *, package: str) -> Said:
    try:
        return process.converse(words, given)
    except TimeoutError as error:
        raise TemporaryFailure(f"{words[0]} does not end", details=[shlex.join(words)]) from error
    except OSError as error:
        raise Unavailable(
            f"{words[0]} cannot be started: {error.strerror}", resolution=f"apt-get install {package}"
        ) from error
