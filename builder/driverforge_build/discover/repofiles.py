"""The machine's own repositories of dnf and zypper: where they are, with which keys and certificates.

Formats: dnf.conf(5), zypper(8). Nothing of them is run, so that another system's files can be read under its
root folder.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.ports import ClientCertificate
from driverforge_core.arch import to_machine

_FOLDERS = ("etc/yum.repos.d", "etc/zypp/repos.d")
_VARIABLES = ("etc/dnf/vars", "etc/yum/vars", "etc/zypp/vars.d")
_VARIABLE = re.compile(r"\$\{?([A-Za-z0-9_]+)\}?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFile:
    """One section of a .repo file, its variables but $basearch filled in.

    `mirrorlist` is an address whose first line is the repository's; `keys` are files of public keys.
    """

    id: str
    uri: str = ""
    mirrorlist: str = ""
    keys: tuple[Path, ...] = ()
    certificate: ClientCertificate | None = None

    def on(self, address: str, arch: str) -> str:
        return address.replace("$basearch", to_machine(arch)).replace("${basearch}", to_machine(arch))


def read_repo_files(root: Path, version: str) -> tuple[RepoFile, ...]:
    """The repositories under a root folder, of a system of that VERSION_ID.

    A file that cannot be read is skipped, as the package managers skip it.
    """
    variables = {"releasever": version, **_releasever(version), **_own_variables(root)}
    found: list[RepoFile] = []
    for folder in _FOLDERS:
        for path in sorted((root / folder).glob("*.repo")):
            found += _sections(path, variables, root)
    return tuple(found)


def _releasever(version: str) -> dict[str, str]:
    major, _, minor = version.partition(".")
    return {"releasever_major": major, "releasever_minor": minor}


def _own_variables(root: Path) -> dict[str, str]:
    return {
        path.name: path.read_text(encoding="utf-8", errors="replace").strip()
        for folder in _VARIABLES
        for path in sorted((root / folder).glob("*"))
        if path.is_file()
    }


def _sections(path: Path, variables: Mapping[str, str], root: Path) -> Iterator[RepoFile]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
    except configparser.Error:
        return
    for name in parser.sections():
        section = {key: _filled(value, variables) for key, value in parser.items(name)}
        certificate, key = section.get("sslclientcert", ""), section.get("sslclientkey", "")
        yield RepoFile(
            id=name,
            uri=_first(section.get("baseurl", "")).rstrip("/"),
            mirrorlist=_first(section.get("mirrorlist", "")),
            keys=tuple(_keys(section.get("gpgkey", ""), root)),
            certificate=ClientCertificate(
                certificate=_under(root, certificate),
                key=_under(root, key or certificate),
                authorities=_under(root, section["sslcacert"]) if section.get("sslcacert") else None,
            )
            if certificate
            else None,
        )


def _filled(value: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), value)


def _first(value: str) -> str:
    return next(iter(value.replace(",", " ").split()), "")


def _keys(value: str, root: Path) -> Iterator[Path]:
    for word in value.replace(",", " ").split():
        if word.startswith("file:"):
            yield _under(root, "/" + word.removeprefix("file:").lstrip("/"))


def _under(root: Path, path: str) -> Path:
    return root / path.lstrip("/")
