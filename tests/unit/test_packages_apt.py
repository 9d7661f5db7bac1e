"""apt as a source of header packages: what is asked, what is followed, how its answers are read.

Texts are apt 2.6's own, where no other version is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from driverforge_core.errors import InputError, StorageFailed, Unavailable, Unsupported
from driverforge_driver.family import debian
from driverforge_driver.packages import PackageAccess, PackageRequest, apt
from driverforge_host.adapters.files import RootedFiles
from support.fakes.answers import Answers

RELEASE = "6.1.0-50-cloud-amd64"
WANTED = PackageRequest(names=(f"linux-headers-{RELEASE}",), dependencies=debian.header_dependencies())
FLAVOUR = f"""Package: linux-headers-{RELEASE}
Version: 6.1.176-1
Depends: linux-headers-6.1.0-50-common (= 6.1.176-1), linux-kbuild-6.1 (>= 6.1.176-1), \
linux-compiler-gcc-12-x86
"""
COMMON = "Package: linux-headers-6.1.0-50-common\nVersion: 6.1.176-1\n"
KBUILD = (
    "Package: linux-kbuild-6.1\nVersion: 6.1.192-2\nDepends: libc6 (>= 2.34), libelf1 (>= 0.142), "
    "libssl3 (>= 3.0.0)\n"
)
UNREACHABLE = """W: Failed to fetch http://mirror.example/debian/dists/bookworm/InRelease  Could not connect \
to 127.0.0.1:9 (127.0.0.1). - connect (111: Connection refused)
W: Some index files failed to download. They have been ignored, or old ones used instead.
"""


BACKPORTS = (
    "linux-base (>= 4.12~), linux-headers-6.12.95+deb12-common (= 6.12.95-1~bpo12+1), "
    "linux-image-6.12.95+deb12-cloud-amd64"
    " (= 6.12.95-1~bpo12+1) | linux-image-6.12.95+deb12-cloud-amd64-unsigned (= "
    "6.12.95-1~bpo12+1), linux-kbuild-6.12.95+deb12,"
    " gcc-12"
)
KNOWN = {
    f"show linux-headers-{RELEASE}": (0, FLAVOUR, ""),
    "show linux-headers-6.1.0-50-common=6.1.176-1": (0, COMMON, ""),
    "show linux-kbuild-6.1": (0, KBUILD, ""),
}


def access(commands: Answers, environ: Mapping[str, str] | None = None, ca: str = "") -> PackageAccess:
    return PackageAccess(
        commands=commands, files=RootedFiles("/nonexistent"), environ=environ or {}, ca_bundle=ca
    )


def download(commands: Answers) -> tuple[str, ...]:
    return apt.download(access(commands), WANTED, "/work")


def test_header_packages_that_the_flavour_depends_on_come_along_in_their_exact_versions() -> None:
    commands = Answers(KNOWN)
    download(commands)
    assert commands.asked[-1].split()[-3:] == [
        f"linux-headers-{RELEASE}=6.1.176-1",
        "linux-headers-6.1.0-50-common=6.1.176-1",
        "linux-kbuild-6.1=6.1.192-2",
    ]


def test_a_mirror_that_never_answers_can_be_stopped_and_holds_nobody_for_ever() -> None:
    commands = Answers(KNOWN)
    download(commands)
    assert [word for line in commands.followed for word in ("update", "download") if f" {word}" in line] == [
        "update",
        "download",
    ]
    assert commands.endless == []


@pytest.mark.parametrize(
    ("depends", "found"),
    [
        # backports: the image is a dependency too, 26 MB that nobody needs for a compilation
        (
            BACKPORTS,
            (("linux-headers-6.12.95+deb12-common", "6.12.95-1~bpo12+1"), ("linux-kbuild-6.12.95+deb12", "")),
        ),
        # Ubuntu: the shared part of a hardware enablement kernel has its own name
        ("linux-hwe-6.8-headers-6.8.0-45, libc6 (>= 2.34)", (("linux-hwe-6.8-headers-6.8.0-45", ""),)),
        ("linux-headers-6.8.0-45:amd64, libelf1 (>= 0.142)", (("linux-headers-6.8.0-45", ""),)),
        ("", ()),
    ],
)
def test_only_header_packages_are_followed(depends: str, found: tuple[tuple[str, str], ...]) -> None:
    assert apt.relations(depends, debian.header_dependencies()) == found


def test_a_kernel_that_the_mirror_dropped_is_named_with_what_to_do() -> None:
    said = "N: Unable to locate package linux-headers-6.1.0-50-cloud-amd64\nE: No packages found\n"
    with pytest.raises(Unsupported) as caught:
        download(Answers({"apt-cache": (100, "", said)}))
    assert f"linux-headers-{RELEASE}" in caught.value.brief
    assert "E: No packages found" in caught.value.details
    assert "precompiled" in caught.value.resolution


def test_a_name_that_apt_knows_only_from_a_relation_is_missing_or_the_mirrors_fault() -> None:
    known = {**KNOWN, "show linux-kbuild-6.1": (0, "", "")}
    with pytest.raises(Unsupported, match="the mirror has no linux-kbuild"):
        download(Answers(known))
    with pytest.raises(Unavailable, match="mirror unreachable"):
        download(Answers({"update": (0, "", UNREACHABLE), **known}))


def test_no_package_after_a_failed_update_is_the_mirrors_fault() -> None:
    with pytest.raises(Unavailable) as caught:
        download(
            Answers({"apt-get -o": (0, "", UNREACHABLE), "apt-cache": (100, "", "E: No packages found\n")})
        )
    assert any("Connection refused" in line for line in caught.value.details)
    assert not any("No packages found" in line for line in caught.value.details)
    assert "HTTP_PROXY" in caught.value.resolution


def test_a_failed_update_is_no_obstacle_where_the_lists_know_the_package() -> None:
    commands = Answers({"update": (0, "", UNREACHABLE), **KNOWN})
    download(commands)
    assert " download " in commands.asked[-1]


def test_a_failed_download_is_the_mirrors_fault() -> None:
    failed = "E: Failed to fetch http://mirror.example/pool/l.deb  404  Not Found [IP: 192.0.2.1 80]\n"
    with pytest.raises(Unavailable, match="mirror unreachable"):
        download(Answers({**KNOWN, " download ": (100, "", failed)}))


# as 2.6, 3.0.4 and 3.3.5 begin; the rest is of both 3.x
@pytest.mark.parametrize(
    "begins", ["GPG error", "OpenPGP signature verification failed", "Signature verification failed"]
)
@pytest.mark.parametrize("lists", [True, False], ids=["older lists", "no lists"])
def test_an_index_of_an_unknown_key_is_not_verified_whatever_apt_calls_that(begins: str, lists: bool) -> None:
    place = "http://mirror.example/debian sid InRelease"
    reason = "Sub-process /usr/bin/sqv returned an error code (1), error message is: Missing key EB2E1EE99652"
    kept = (
        "An error occurred during the signature verification. The repository is not updated and the previous "
        "index files will be used. "
    )
    said = f"W: {kept if lists else ''}{begins}: {place}: {reason}, which is needed to verify signature.\n"
    said += (
        f"W: Failed to fetch http://mirror.example/debian/dists/sid/InRelease  {reason}\n"
        "W: Some index files failed to download. They have been ignored, or old ones used instead.\n"
        if lists
        else f"E: The repository '{place}' is not signed.\n"
    )
    update = (0 if lists else 100, "", said)
    with pytest.raises(InputError, match="header packages cannot be verified: apt-get accepts no signature"):
        download(Answers({" update": update, "apt-cache": (100, "", "E: No packages found\n")}))


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.list", "# x\ndeb [arch=amd64 trusted=yes] http://m.example/ s main\n", [2]),
        ("a.list", "deb [trusted=no] http://m.example/ s main\n", []),
        ("a.sources", "Types: deb\nTrusted: yes\n\nTypes: deb\nTrusted: no\n\ntrusted:  true\n", [2, 7]),
        ("a.sources", "Types: deb\nTrusted:\n yes\nSuites: s\n", [2]),
        ("a.sources", "Types: deb\r\nTrusted:\r\n\tyes\r\nSuites: s\r\n", [2]),
        ("a.sources", "Types: deb\nTrusted:\nEnabled: yes\n", []),
        ("a.sources", "#Trusted: yes\n", []),
    ],
)
def test_a_source_that_is_trusted_without_a_signature_is_named(
    tmp_path: Path, name: str, text: str, lines: list[int]
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    commands = Answers({"indextargets": (0, f"{path}:1\n{path}:1\n", "")})
    seen = PackageAccess(commands=commands, files=RootedFiles(), environ={})
    assert apt.trusted_sources(seen) == tuple(f"{path}:{line}" for line in lines)


def test_a_full_disk_is_not_blamed_on_the_mirror() -> None:
    failed = (
        "E: Failed to fetch http://mirror.example/pool/l.deb  Error writing to file - write (28: No "
        "space left on device)\n"
    )
    with pytest.raises(StorageFailed, match="no space left"):
        download(Answers({**KNOWN, " download ": (100, "", failed)}))


def test_proxies_and_the_sites_ca_reach_apt() -> None:
    commands = Answers(KNOWN)
    environ = {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "http_proxy": "http://other.example:80",
        "NO_PROXY": "",
        "APT_CONFIG": "/c",
    }
    apt.download(access(commands, environ, ca="/ca.pem"), WANTED, "/work")
    wanted = {
        "https_proxy": "http://proxy.example:3128",
        "http_proxy": "http://other.example:80",
        "APT_CONFIG": "/c",
    }
    assert all(environment == wanted for environment in commands.environments)
    assert all("Acquire::https::CAInfo=/ca.pem" in line for line in commands.asked)
