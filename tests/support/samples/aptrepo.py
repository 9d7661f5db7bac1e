"""Local apt repositories: real packages and indexes, signed by a throw-away key, on an http server.

Packages are made with dpkg-deb. The indexes are by hash, and the suites have an InRelease.

    key = SigningKey.make(tmp_path / "gnupg")
    archive = Archive(tmp_path / "debian", key)
    archive.publish("bookworm", {"main": [Deb(name="make", version="4.3-4.1", depends="libc6")]})

A suite may also have packages that somebody else made: the path of a .deb stands for such a one.

What apt and dpkg refuse, this refuses too: they make and read these files in the tests.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import shutil
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

from support.process import require, run

EPOCH = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
"""When suites are signed unless told otherwise; a test passes a time of its own as 'now'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deb:
    """A binary package. `files` maps a path inside it to its text; `fields` are further control fields.

    `tree` is a folder with more files, of any kind.
    """

    name: str
    version: str
    arch: str = "amd64"
    depends: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    tree: Path | None = None

    def control(self) -> str:
        known = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.arch,
            "Maintainer": "Nobody <nobody@example.org>",
            "Depends": self.depends,
            **self.fields,
            "Description": "made for a test",
        }
        return "".join(f"{name}: {value}\n" for name, value in known.items() if value)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A throw-away key.

    `keyring` is its public half, binary; `armored` is the same as text. `clock` is what gpg takes for the
    time.
    """

    home: Path
    keyring: Path
    armored: Path
    clock: str = ""

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        name: str = "Test Archive",
        expires: str = "never",
        clock: str = "",
        algorithm: str = "ed25519",
    ) -> SigningKey:
        """Make a key with gpg. Raises Unavailable without gpg.

        `expires` is as gpg writes it ('30d'), and so are `clock` ('20200101T000000') and `algorithm`
        ('rsa2048').
        """
        require("gpg", "gpgconf")
        folder.mkdir(parents=True)
        # gpg-agent's socket lies in its home, and a socket's path has 108 bytes at most: tmp_path may be
        # longer
        home = Path(tempfile.mkdtemp(prefix="df-gpg-", dir="/tmp"))
        key = cls(home=home, keyring=folder / "archive.gpg", armored=folder / "archive.asc", clock=clock)
        try:
            key._gpg(
                "--passphrase",
                "",
                "--quick-generate-key",
                f"{name} <archive@example.org>",
                algorithm,
                "sign",
                expires,
            )
            key._export()
        except BaseException:
            key.destroy()
            raise
        return key

    @property
    def fingerprint(self) -> str:
        listed = self._gpg("--with-colons", "--list-keys").splitlines()
        return next(line for line in listed if line.startswith("fpr:")).split(":")[9]

    def clearsign(self, text: str) -> str:
        return self._gpg("--clearsign", stdin=text)

    def detach(self, file: Path) -> None:
        """Write a signature beside a file, FILE.asc."""
        self._gpg("--yes", "--armor", "--detach-sign", "--output", f"{file}.asc", str(file))

    def revoke(self) -> None:
        """Revoke it in both keyrings, with the certificate that gpg made along with the key."""
        (certificate,) = (self.home / "openpgp-revocs.d").iterdir()
        self._gpg("--import", stdin=certificate.read_text().replace("\n:-----", "\n-----"))
        self._export()

    def destroy(self) -> None:
        """End the agent and remove the secret half."""
        run("gpgconf", "--homedir", self.home, "--kill", "all", check=False)
        shutil.rmtree(self.home, ignore_errors=True)

    def _export(self) -> None:
        self._gpg("--yes", "--output", str(self.keyring), "--export")
        self._gpg("--yes", "--armor", "--output", str(self.armored), "--export")

    def _gpg(self, *arguments: str, stdin: str | None = None) -> str:
        clock = ("--faked-system-time", self.clock) if self.clock else ()
        return run(
            "gpg",
            "--homedir",
            self.home,
            "--batch",
            "--pinentry-mode",
            "loopback",
            *clock,
            *arguments,
            stdin=stdin,
        ).stdout


@contextmanager
def signing_key(folder: Path, *, algorithm: str = "ed25519") -> Iterator[SigningKey]:
    key = SigningKey.make(folder, algorithm=algorithm)
    try:
        yield key
    finally:
        key.destroy()


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder with pool/ and dists/, as an archive of a distribution has them."""

    folder: Path
    key: SigningKey
    # {name of an index: what packs it}
    packing: Mapping[str, Callable[[bytes], bytes]] = field(
        default_factory=lambda: {"Packages": bytes, "Packages.xz": lzma.compress}
    )

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def publish(
        self,
        suite: str,
        components: Mapping[str, Sequence[Deb | Path]],
        *,
        archs: Sequence[str] = ("amd64",),
        date: datetime = EPOCH,
        valid_for: timedelta | None = None,
        fields: Mapping[str, str] | None = None,
        prefix: str = "",
        by_hash: bool = True,
    ) -> Path:
        """Write a suite, replacing what it was, and return its folder.

        `prefix` is put before the component names in Release alone, as Debian's security archive does with
        'updates/'.
        """
        dist = self.folder / "dists" / suite
        shutil.rmtree(dist, ignore_errors=True)
        digests: dict[str, tuple[str, int]] = {}
        for component, debs in components.items():
            stanzas = [self._add(deb, component) for deb in debs]
            for arch in archs:
                index = "\n".join(text for own, text in stanzas if own in (arch, "all"))
                digests |= self._write_index(
                    dist, f"{component}/binary-{arch}", index.encode(), by_hash=by_hash
                )
        release = {
            "Origin": "Debian",
            "Label": "Debian",
            "Suite": f"test-{suite}",
            "Codename": suite,
            "Date": format_datetime(date),
            "Valid-Until": format_datetime(date + valid_for) if valid_for else "",
            "Acquire-By-Hash": "yes" if by_hash else "",
            "Architectures": " ".join(archs),
            "Components": " ".join(prefix + component for component in components),
            **(fields or {}),
        }
        text = "".join(f"{name}: {value}\n" for name, value in release.items() if value)
        text += "SHA256:\n" + "".join(
            f" {sha256} {size:8d} {path}\n" for path, (sha256, size) in sorted(digests.items())
        )
        (dist / "InRelease").write_text(self.key.clearsign(text))
        return dist

    def _add(self, deb: Deb | Path, component: str) -> tuple[str, str]:
        """Put a package into the pool; returns its architecture, and its stanza for an index."""
        if isinstance(deb, Path):
            name, arch = run(
                "dpkg-deb", "--show", "--showformat", "${Package} ${Architecture}", deb
            ).stdout.split()
            path = self._pool(component, name) / deb.name
            shutil.copy(deb, path)
            control = run("dpkg-deb", "--field", deb).stdout
        else:
            arch, control = deb.arch, deb.control()
            path = self._pool(component, deb.name)
            path /= f"{deb.name}_{deb.version.replace(':', '%3a')}_{deb.arch}.deb"
            if not path.exists():
                build_deb(deb, path)
        data = path.read_bytes()
        return arch, (
            f"{control}Filename: {path.relative_to(self.folder).as_posix()}\nSize: {len(data)}\n"
            f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
        )

    def _pool(self, component: str, name: str) -> Path:
        folder = self.folder / "pool" / component / name[0] / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _write_index(
        self, dist: Path, folder: str, data: bytes, *, by_hash: bool
    ) -> dict[str, tuple[str, int]]:
        found = {}
        for name, pack in self.packing.items():
            content = pack(data)
            sha256 = hashlib.sha256(content).hexdigest()
            found[f"{folder}/{name}"] = (sha256, len(content))
            for path in (
                dist / folder / name,
                *((dist / folder / "by-hash/SHA256" / sha256,) if by_hash else ()),
            ):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return found


def build_deb(deb: Deb, path: Path) -> None:
    """Make a real .deb with dpkg-deb."""
    require("dpkg-deb")
    path.parent.mkdir(parents=True, exist_ok=True)
    inside = {**deb.files, "DEBIAN/control": deb.control()}
    path.write_bytes(_packed(deb.tree, inside) if deb.tree else _texts_packed(tuple(inside.items())))


@cache
def _texts_packed(files: tuple[tuple[str, str], ...]) -> bytes:
    """The same texts give the same package: one test after the other wants it."""
    return _packed(None, dict(files))


def _packed(tree: Path | None, files: Mapping[str, str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="df-deb-") as name:
        root, made = Path(name, "root"), Path(name, "made.deb")
        root.mkdir()
        if tree:
            shutil.copytree(tree, root, symlinks=True, dirs_exist_ok=True)
        for inside, text in files.items():
            file = root / inside
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        root.chmod(0o755)
        run("dpkg-deb", "-Zxz", "-z0", "--root-owner-group", "-b", root, made, env={"SOURCE_DATE_EPOCH": "0"})
        return made.read_bytes()


@dataclass(slots=True)
class Served:
    """A folder on http.

    `requests` are 'GET PATH' lines as they came. `broken` maps a path, or '*', to the status that it gets
    instead; `later` is the Retry-After of all answers. `before` is called with each such line before the
    answer.
    """

    url: str
    requests: list[str] = field(default_factory=list)
    broken: dict[str, int] = field(default_factory=dict)
    later: str = ""
    before: Callable[[str], object] = lambda _: None


def self_signed(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that is its own authority, with its key in the same file."""
    folder.mkdir(parents=True)
    path = folder / "server.pem"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    run(
        "openssl",
        "req",
        "-x509",
        *curve,
        "-nodes",
        "-days",
        "2",
        "-keyout",
        path,
        "-out",
        folder / "only.pem",
        *subject,
    )
    path.write_text(path.read_text() + (folder / "only.pem").read_text())
    return path


@contextmanager
def served(folder: Path, *, certificate: Path | None = None) -> Iterator[Served]:
    """Serve a folder on a free port of 127.0.0.1 while the block runs.

    If-Modified-Since is answered as servers do. With a certificate (and its key in the same file) it is
    served over https.
    """
    served_folder = Served(url="")

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def send_head(self) -> io.BytesIO | BinaryIO | None:
            served_folder.requests.append(f"{self.command} {self.path}")
            served_folder.before(f"{self.command} {self.path}")
            status = served_folder.broken.get(self.path, served_folder.broken.get("*"))
            if status is None:
                return super().send_head()
            self.send_error(status)
            return None

        def end_headers(self) -> None:
            if served_folder.later:
                self.send_header("Retry-After", served_folder.later)
            super().end_headers()

        def log_request(self, *_: object) -> None: ...

        def log_error(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served_folder.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield served_folder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
