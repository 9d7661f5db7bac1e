"""A registry of our own: Debian's docker-registry as a process.

Its port is one of 127.0.0.1 that the kernel picks.
"""

from __future__ import annotations

import ctypes
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driverforge_core.errors import Unavailable
from support.process import require, start, stop, until
from support.samples.signingkeys import SigningKey, signing_key

_CONFIG = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {data}}}, delete: {{enabled: {deletes}}}}}
http: {{addr: "127.0.0.1:0"}}
"""
TLS_NAME = "127.1"
"""The C library's other name of 127.0.0.1: clients take that itself for a registry without TLS."""
_LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A registry that answers, over plain HTTP (clients take 127.0.0.0/8 for insecure without a setting)."""

    address: str  # '127.0.0.1:PORT'
    log: Path


@contextmanager
def serve(
    folder: Path,
    *,
    users: Mapping[str, str] | None = None,
    program: str | Path = "docker-registry",
    deletes: bool = True,
    identity: SigningKey | None = None,
) -> Iterator[Registry]:
    """Serve what is in `folder`/data.

    `users` (name → password) closes it to everybody else (HTTP basic). `program` may be a newer distribution,
    `deletes` switches deletion on. With an `identity`, a certificate of TLS_NAME, it speaks TLS, and its
    address has that name.
    """
    require(str(program), "setpriv")
    folder.mkdir(parents=True, exist_ok=True)
    config, log = folder / "config.yml", folder / "registry.log"
    config.write_text(_CONFIG.format(data=folder / "data", deletes=str(deletes).lower()))
    env = {"OTEL_TRACES_EXPORTER": "none"}
    if users:
        lines = [f"{name}:{bcrypt(password)}\n" for name, password in users.items()]
        (folder / "htpasswd").write_text("".join(lines))
        env |= {
            "REGISTRY_AUTH": "htpasswd",
            "REGISTRY_AUTH_HTPASSWD_REALM": "bench",
            "REGISTRY_AUTH_HTPASSWD_PATH": str(folder / "htpasswd"),
        }
    if identity:
        env |= {
            "REGISTRY_HTTP_TLS_CERTIFICATE": str(identity.file),
            "REGISTRY_HTTP_TLS_KEY": str(identity.key),
        }
    log.unlink(missing_ok=True)
    child = start([program, "serve", config], log=log, env=env)
    try:
        until(
            lambda: _LISTENING.search(log.read_text()) is not None,
            "docker-registry",
            timeout=20,
            child=child,
            log=log,
        )
        found = _LISTENING.search(log.read_text())
        if found is None:
            raise Unavailable("docker-registry names no address", details=[log.read_text()])
        address = found[1].replace("127.0.0.1", TLS_NAME) if identity else found[1]
        yield Registry(address=address, log=log)
    finally:
        stop(child)


def filled(store: Path, fill: Callable[[str], object]) -> Path:
    """A folder for `copy_of`, with what `fill` puts into a registry at the address that it is given.

    Tests that begin with the same images fill one registry for all of them.
    """
    with serve(store) as server:
        fill(server.address)
    return store


def copy_of(store: Path, folder: Path) -> Path:
    """A folder for `serve` that holds the content of another."""
    shutil.copytree(store / "data", folder / "data")
    return folder


def identity(folder: Path) -> SigningKey:
    """A certificate of TLS_NAME that is its own authority."""
    name = f"subjectAltName=DNS:{TLS_NAME}"
    return signing_key(folder, "-addext", name, subject=f"/CN={TLS_NAME}")


def bcrypt(password: str) -> str:
    """A bcrypt hash, the only kind that docker-registry takes; made by the C library (crypt(5))."""
    try:
        crypt = ctypes.CDLL("libcrypt.so.1").crypt
    except OSError as error:
        raise Unavailable("no libcrypt.so.1 to hash a registry password with") from error
    crypt.restype = ctypes.c_char_p
    alphabet = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    # the last character holds two bits only
    salt = "".join(secrets.choice(alphabet) for _ in range(21)) + "."
    hashed: bytes | None = crypt(password.encode(), f"$2b$05${salt}".encode())
    if not hashed or not hashed.startswith(b"$2b$"):
        raise Unavailable("the C library's crypt() knows no bcrypt")
    return hashed.decode()
