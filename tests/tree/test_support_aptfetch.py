"""Which mirror the bench uses: what the machine's own apt is configured for, in both of its formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from support.aptfetch import mirror, version_key

DEBIAN = 'ID=debian\nVERSION_CODENAME=bookworm\nVERSION_ID="12"\n'
DEB822 = """\
# a comment
Types: deb deb-src
URIs: https://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
OFF = f"Enabled: no\n{DEB822}".replace("mirror.", "off.").partition("\n\n")[0]


def _machine(etc: Path, files: dict[str, str], os_release: str = DEBIAN) -> Path:
    (etc / "apt/sources.list.d").mkdir(parents=True)
    (etc / "os-release").write_text(os_release)
    for name, text in files.items():
        (etc / "apt" / name).write_text(text)
    return etc


@pytest.mark.parametrize(
    "files",
    [
        {"sources.list.d/debian.sources": DEB822},
        {
            "sources.list": "# deb https://old.example/debian bookworm main\n"
            "deb https://mirror.example/debian bookworm main non-free\n"
        },
        {"sources.list": "deb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian/ bookworm main\n"},
        {
            "sources.list.d/a.list": "deb https://packages.example/node nodistro main\n"
            "deb-src https://src.example/debian bookworm main\n",
            "sources.list.d/b.sources": OFF,
            "sources.list.d/c.sources": DEB822,
        },
    ],
)
def test_the_mirror_of_the_machines_own_release(tmp_path: Path, files: dict[str, str]) -> None:
    assert mirror(_machine(tmp_path, files)) == "https://mirror.example/debian"


def test_other_systems_and_machines_without_a_mirror_are_told_apart_from_debian(tmp_path: Path) -> None:
    ubuntu = _machine(
        tmp_path / "u", {"sources.list.d/x.sources": DEB822}, "ID=ubuntu\nVERSION_CODENAME=bookworm\n"
    )
    with pytest.raises(Unavailable, match="names no mirror for Debian"):
        mirror(ubuntu)
    with pytest.raises(Unavailable, match="Debian bookworm"):
        mirror(_machine(tmp_path / "d", {}))


def test_versions_sort_as_dpkg_sorts_them() -> None:
    ordered = ["6.12.95-1~bpo12+1", "6.12.95-1", "6.12.107-1", "1:1.0"]
    shuffled = [ordered[2], ordered[0], ordered[3], ordered[1]]
    assert sorted(shuffled, key=version_key) == ordered
    assert version_key("1.0") == version_key("1.0-0")
