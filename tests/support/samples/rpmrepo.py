"""Real RPM packages and repositories: rpmbuild makes them, rpmsign signs, createrepo_c writes the index.

    home = RpmHome.make(tmp_path / "home")
    package = build(Rpm(name="kernel-devel", version="5.14.0", release="427.el9"), tmp_path / "repo")
    sign(package, key); home.trust(key)
    index(tmp_path / "repo")

A key has to be an RSA one: rpm of RHEL 8 knows no other that gpg makes today.
"""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.process import require, run
from support.samples.aptrepo import SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpm:
    """A binary package. `files` maps an absolute path inside it to its text.

    `tree` is a folder with more files, of any kind; their folders are the system's. `zeros` is how many bytes
    a file of nothing else has, where it matters how large a package is.
    """

    name: str
    version: str
    release: str
    epoch: str = ""
    arch: str = "noarch"
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    summary: str = "made for a test"
    tree: Path | None = None
    zeros: int = 0

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.release}.{self.arch}.rpm"

    def tags(self) -> str:
        known = [
            ("Version", self.version),
            ("Release", self.release),
            ("Epoch", self.epoch),
            ("Summary", self.summary),
            ("BuildArch", self.arch if self.arch == "noarch" else ""),
            # of a tree with programs it would be what Debian's libraries are called
            ("AutoReqProv", "no"),
            *(("Requires", one) for one in self.requires),
            *(("Provides", one) for one in self.provides),
        ]
        return "".join(f"{tag}: {value}\n" for tag, value in known if value)

    def install(self) -> str:
        made = [f"mkdir -p %{{buildroot}}\ncp -a '{self.tree}/.' %{{buildroot}}/\n"] if self.tree else []
        for path, text in {**self.files, **({self._zeros: ""} if self.zeros else {})}.items():
            made.append(f"mkdir -p %{{buildroot}}{path.rpartition('/')[0]}\n")
            made.append(f"printf '%s' '{text}' >%{{buildroot}}{path}\n")
        if self.zeros:
            made.append(f"truncate -s {self.zeros} %{{buildroot}}{self._zeros}\n")
        return "".join(made)

    def paths(self) -> list[str]:
        """All that is in it, as a .spec file lists it."""
        inside = sorted(self.tree.rglob("*")) if self.tree else []
        found = [
            f"/{path.relative_to(self.tree or '')}" for path in inside if path.is_symlink() or path.is_file()
        ]
        return [*(f'"{path}"' for path in found), *self.files, *([self._zeros] if self.zeros else [])]

    @property
    def _zeros(self) -> str:
        return f"/usr/share/{self.name}-{self.version}-{self.release}.zeros"


def _spec(packages: Sequence[Rpm]) -> str:
    """A source that is never built itself, and one package of it for each; so they are made in one run."""
    own = "".join(
        f"%package -n {one.name}\n{one.tags()}%description -n {one.name}\n{one.summary}\n" for one in packages
    )
    files = "".join(
        f"%files -n {one.name}\n" + "".join(f"{path}\n" for path in one.paths()) for one in packages
    )
    return (
        "Name: made-for-tests\nVersion: 1\nRelease: 1\nSummary: none\nLicense: MIT\nAutoReqProv: no\n"
        f"%description\nnone\n{own}%install\n{''.join(one.install() for one in packages)}{files}"
    )


@dataclass(frozen=True, slots=True)
class RpmHome:
    """A home folder whose macros give rpm a database of its own: the keys of an image."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> RpmHome:
        require("rpmkeys", "rpmbuild", "rpmsign")
        folder.mkdir(parents=True)
        (folder / ".rpmmacros").write_text(f"%_dbpath {folder}/rpmdb\n")
        return cls(folder)

    @property
    def environ(self) -> dict[str, str]:
        return {"HOME": str(self.folder)}

    def trust(self, key: SigningKey) -> None:
        run("rpmkeys", "--import", key.armored, env=self.environ)


def build(package: Rpm, folder: Path) -> Path:
    """Make an unsigned package in a folder."""
    (made,) = build_all([package], folder)
    return made


def build_all(packages: Iterable[Rpm], folder: Path, *, payload: str = "w1.gzdio") -> list[Path]:
    """Make unsigned packages in a folder; `payload` is rpm's word for their compression."""
    require("rpmbuild")
    folder.mkdir(parents=True, exist_ok=True)
    waiting = list(packages)
    made = [folder / package.file_name for package in waiting]
    while waiting:
        # one source has no two packages of one name, or for two machines
        machine = next((one.arch for one in waiting if one.arch != "noarch"), "x86_64")
        run_now: dict[str, Rpm] = {}
        for package in waiting:
            if package.arch in (machine, "noarch"):
                run_now.setdefault(package.name, package)
        _build(list(run_now.values()), folder, machine, payload)
        waiting = [package for package in waiting if run_now.get(package.name) is not package]
    return made


def _build(packages: Sequence[Rpm], folder: Path, machine: str, payload: str) -> None:
    with tempfile.TemporaryDirectory(prefix="df-rpm-") as name:
        spec = Path(name, "package.spec")
        spec.write_text(_spec(packages))
        home = RpmHome.make(Path(name, "home"))
        words = {
            "_topdir": f"{name}/top",
            "_rpmdir": str(folder),
            "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "_build_id_links": "none",
            "_binary_payload": payload,
            "__os_install_post": "%{nil}",
        }
        defines = [f"--define={key} {value}" for key, value in words.items()]
        run("rpmbuild", "-bb", "--quiet", f"--target={machine}", *defines, spec, env=home.environ)


def sign(package: Path, key: SigningKey) -> Path:
    """Sign a package with the only secret key of `key`."""
    require("rpmsign")
    defines = [
        f"--define=_gpg_path {key.home}",
        "--define=_gpg_name archive@example.org",
        "--define=__gpg /usr/bin/gpg",
    ]
    run("rpmsign", *defines, "--addsign", package)
    return package


def index(folder: Path, *options: str) -> None:
    """Write the index of all packages in a folder; `options` are createrepo_c's."""
    require("createrepo_c")
    # the databases are for yum, and half of the work: distributions leave them out by and by
    run("createrepo_c", "--quiet", "--no-database", *options, folder)


def add_metadata(folder: Path, kind: str, text: str, *options: str) -> None:
    """Add a further file to an index, such as `modules`; `options` are modifyrepo_c's."""
    with tempfile.TemporaryDirectory(prefix="df-md-") as name:
        file = Path(name, f"{kind}.yaml")
        file.write_text(text)
        run("modifyrepo_c", f"--mdtype={kind}", *options, file, folder / "repodata")


def repack_primary(folder: Path, command: Sequence[str], suffix: str) -> None:
    """Pack the index of a repository otherwise, as newer createrepo_c do it; `command` packs its input."""
    repomd = folder / "repodata/repomd.xml"
    (old,) = folder.glob("repodata/*-primary.xml.gz")
    plain = gzip.decompress(old.read_bytes())
    data = subprocess.run(command, input=plain, capture_output=True, check=True).stdout
    sha256 = hashlib.sha256(data).hexdigest()
    (folder / f"repodata/{sha256}-primary.xml{suffix}").write_bytes(data)
    text = repomd.read_text().replace(old.name, f"{sha256}-primary.xml{suffix}")
    before = f"<size>{old.stat().st_size}</size>"
    repomd.write_text(
        text.replace(old.name.partition("-")[0], sha256).replace(before, f"<size>{len(data)}</size>", 1)
    )
    old.unlink()


def sign_index(folder: Path, key: SigningKey) -> None:
    """Sign a repository's repomd.xml, as SUSE and Rocky do."""
    key.detach(folder / "repodata/repomd.xml")


def change(package: Path) -> None:
    """Change the last byte of a package, which belongs to its payload."""
    data = bytearray(package.read_bytes())
    data[-1] ^= 0xFF
    package.write_bytes(data)
