"""Throw-away keys for module signatures, and what the tools that people sign with make of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from driverforge_core.certificate import Certificate, parse_certificate
from support.process import require, run


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """Files of a private key and its certificate, both PEM."""

    key: Path
    file: Path

    @property
    def certificate(self) -> Certificate:
        return parse_certificate(self.file.read_bytes())


def signing_key(
    folder: Path, *options: str, subject: str = "/CN=Site modules", kind: str = "rsa:2048", password: str = ""
) -> SigningKey:
    """Make a key pair below a folder; `options` are further ones of `openssl req -x509`."""
    require("openssl")
    folder.mkdir(parents=True, exist_ok=True)
    made = SigningKey(key=folder / "signing.key", file=folder / "signing.pem")
    closed = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    files = ["-keyout", str(made.key), "-out", str(made.file)]
    words = ["openssl", "req", "-x509", "-newkey", *kind.split(), *closed, "-days", "30"]
    run(*words, "-subj", subject, *options, *files)
    return made


def cms(content: Path, key: SigningKey, *options: str, digest: str = "sha256", kernels: bool = True) -> bytes:
    """`openssl cms -sign`, with `kernels` as scripts/sign-file calls it."""
    output = content.with_suffix(".cms")
    as_kernels = ["-binary", "-nocerts", "-noattr"] if kernels else []
    made = ["-md", digest, "-outform", "DER", "-out", str(output)]
    files = ["-in", str(content), "-signer", str(key.file), "-inkey", str(key.key)]
    run("openssl", "cms", "-sign", *as_kernels, *options, *made, *files)
    return output.read_bytes()


def bare(content: Path, key: SigningKey, *options: str, digest: str = "sha256") -> bytes:
    """`openssl dgst -sign`: what a key service gives."""
    output = content.with_suffix(".sig")
    run("openssl", "dgst", f"-{digest}", "-sign", key.key, *options, "-out", output, content)
    return output.read_bytes()
