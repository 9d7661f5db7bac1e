"""Real RPM packages and repositories: rpmbuild makes them, rpmsign signs, createrepo_c writes the index.

    home = RpmHome.make(tmp_path / "home")
    package = build(Rpm(name="kernel-devel", version="5.14.0", release="427.el9"), tmp_path / "repo")
    sign(package, key); home.trust(key)
    index(tmp_path / "repo")

A key has to be an RSA one: rpm of RHEL 8 knows no other that gpg makes today.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.process import require, run
from support.samples.aptrepo import SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpm:
    """A binary package. `files` maps an absolute path inside it to its text."""

    name: str
    version: str
    release: str
    files: Mapping[str, str] = field(default_factory=dict)
    summary: str = "made for a test"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.release}.noarch.rpm"

    def spec(self) -> str:
        install = [
            f"mkdir -p %{{buildroot}}{path.rpartition('/')[0]}\nprintf '%s' '{text}' >%{{buildroot}}{path}"
            for path, text in self.files.items()
        ]
        return "\n".join(
            [
                f"Name: {self.name}",
                f"Version: {self.version}",
                f"Release: {self.release}",
                f"Summary: {self.summary}",
                "License: MIT",
                "BuildArch: noarch",
                "%description",
                self.summary,
                "%install",
                *install,
                "%files",
                *self.files,
                "",
            ]
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
    require("rpmbuild")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="df-rpm-") as name:
        spec = Path(name, "package.spec")
        spec.write_text(package.spec())
        home = RpmHome.make(Path(name, "home"))
        words = {
            "_topdir": f"{name}/top",
            "_rpmdir": str(folder),
            "_rpmfilename": package.file_name,
            "_build_id_links": "none",
            "__os_install_post": "%{nil}",
        }
        defines = [f"--define={key} {value}" for key, value in words.items()]
        run("rpmbuild", "-bb", "--quiet", *defines, spec, env=home.environ)
    return folder / package.file_name


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


def index(folder: Path) -> None:
    """Write the index of all packages in a folder."""
    require("createrepo_c")
    run("createrepo_c", "--quiet", folder)


def change(package: Path) -> None:
    """Change the last byte of a package, which belongs to its payload."""
    data = bytearray(package.read_bytes())
    data[-1] ^= 0xFF
    package.write_bytes(data)
