"""Keys that sign modules: in a file by openssl, in a PKCS#11 token by pkcs11-tool.

Both are given a digest and give a signature. The passphrase or PIN is in the environment as
KBUILD_SIGN_PIN, the name that the kernel's own sign-file uses, and never on a command line.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

from driverforge_build.engine.userprograms import UserProgram
from driverforge_build.ports import ModuleSigner, ToSign
from driverforge_core.certificate import digest_info
from driverforge_core.errors import DriverforgeError, InputError, NotPermitted, Unavailable

PIN = "KBUILD_SIGN_PIN"
_PACKAGES = {"openssl": "openssl", "pkcs11-tool": "opensc"}
_EXAMPLE = "pkcs11:token=site;object=modules?module-path=/usr/lib/softhsm/libsofthsm2.so"


def key_signer(where: str) -> ModuleSigner:
    """By a file, or by a token where that is a URI `pkcs11:`.

    A token is asked for its key: raises InputError where it has none like that, or the URI says too little,
    and what a ModuleSigner raises.
    """
    if where.startswith("pkcs11:"):
        tool, key = _token_words(where)
        return partial(_by_token, (*tool, "--id", _key_id(tool, key)))
    return partial(_by_file, where)


def _by_file(file: str, what: ToSign) -> bytes:
    if not os.access(file, os.R_OK):
        raise InputError(
            f"the key {file} cannot be read",
            resolution="give --sign-key the file of the private key, or pkcs11:… for one in a token",
        )
    pin = os.environ.get(PIN)
    wrong = f"the passphrase of {file} in {PIN} is wrong" if pin else f"{file} needs a passphrase"
    words = ["openssl", "pkeyutl", "-sign", "-inkey", file, "-passin", f"env:{PIN}" if pin else "pass:"]
    locked = NotPermitted(wrong, resolution=f"set {PIN} to it in the environment")
    known = dict.fromkeys(("bad decrypt", "wrong password", "empty password"), locked)
    words += ["-pkeyopt", f"digest:{what.algorithm}"]
    advice = f"give an RSA private key in PEM or DER, or run it yourself: {shlex.join(words)}"
    return _answer(words, what.digest, known, f"sign {what.module.name}", advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A private key in a token; `id` in hexadecimal. What is '' in a question does not matter."""

    label: str = ""
    id: str = ""

    def answers(self, asked: _Key) -> bool:
        return asked.label in ("", self.label) and asked.id in ("", self.id)


def _token_words(uri: str) -> tuple[tuple[str, ...], _Key]:
    """The words for pkcs11-tool that lead to the token, and the key in it, of an URI (RFC 7512)."""
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
    options = {"token": "--token-label", "slot-id": "--slot"}
    words = [word for name, option in options.items() if name in found for word in (option, found[name])]
    key = _Key(label=found.get("object", ""), id=found.get("id", ""))
    return ("pkcs11-tool", "--module", module, *words), key


def _key_id(tool: Sequence[str], asked: _Key) -> str:
    """The id of the key that is meant: pkcs11-tool signs with the first one it finds, whatever --label says.

    Raises InputError where the token shows no such key, or several.
    """
    if not asked.label:
        return asked.id
    listed = _ask_token([*tool, "--list-objects", "--type", "privkey"], b"", "list its keys")
    keys = [
        _Key(label=_attribute(text, "label"), id=_attribute(text, "ID"))
        for text in listed.decode(errors="replace").split("Private Key Object")[1:]
    ]
    found = {key.id for key in keys if key.answers(asked)}
    if not found:
        raise _no_such_key(tool, [f"it shows: {key.label or 'no label'}, id {key.id}" for key in keys])
    if len(found) > 1 or "" in found:
        raise InputError(
            f"the token has several keys {asked.label}, or one without an id",
            details=[f"ids: {' '.join(sorted(found))}"],
            resolution="name it by its id, two digits a byte: id=%a1",
        )
    return found.pop()


def _attribute(text: str, name: str) -> str:
    """An attribute of an object, as pkcs11-tool lists them."""
    found = re.search(rf"^ +{name}: +(.*?) *$", text, re.MULTILINE)
    return found[1] if found else ""


def _by_token(words: Sequence[str], what: ToSign) -> bytes:
    # RSA-PKCS does the padding; what is padded is ours to write
    given = digest_info(what.algorithm, what.digest)
    return _ask_token([*words, "--sign", "--mechanism", "RSA-PKCS"], given, f"sign {what.module.name}")


def _ask_token(words: Sequence[str], given: bytes, purpose: str) -> bytes:
    login = ["--login", "--pin", f"env:{PIN}"] if os.environ.get(PIN) else []
    advice = f"run it yourself: {shlex.join(words)}"
    if not login:
        advice += f"; keys are mostly shown to whoever has logged in: set {PIN} in the environment"
    return _answer([*words, *login], given, _token_errors(words), purpose, advice)


def _token_errors(words: Sequence[str]) -> Mapping[str, DriverforgeError]:
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
        "key not found": _no_such_key(words, [shlex.join(words)]),
    }


def _no_such_key(words: Sequence[str], details: Sequence[str]) -> InputError:
    return InputError(
        "the token has no such key, or shows it only to whoever has logged in",
        details=details,
        resolution=f"set {PIN} in the environment; names and ids are shown by "
        f"`pkcs11-tool --module {words[2]} --login --list-objects`",
    )


def _answer(
    words: Sequence[str], given: bytes, known: Mapping[str, DriverforgeError], purpose: str, advice: str
) -> bytes:
    """What a program prints that is to do something with what it is given to read.

    Raises the error that is `known` for a word of its complaint, else CommandFailed with `advice`.
    """
    program = UserProgram(option="--sign-key", argv=words, resolution=advice, package=_PACKAGES[words[0]])
    said = program.converse(given)
    if said.status == 0 and (said.output or not given):
        return said.output
    raise next((error for word, error in known.items() if word in said.errors), program.failed(said, purpose))
