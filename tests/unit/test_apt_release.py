"""Release files and the machine's apt configuration."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest

from driverforge_build.discover.apt import release_file
from driverforge_build.discover.apt.suite import Location, locate
from driverforge_build.discover.machine import AptSource, Machine, parse_list, parse_sources
from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.fields import Arch
from driverforge_build.ports import DatedDocument, LastRead
from driverforge_core.errors import InputError, Unavailable
from support.samples.sampledebian import MATRIX, sample_matrix

A, B = "a" * 64, "b" * 64
SECURITY = f"""\
Origin: Debian
Suite: oldstable-security
Codename: bookworm-security
Date: Wed, 18 Nov 2026 22:17:41 UTC
Valid-Until: Wed, 25 Nov 2026 22:17:41 UTC
Acquire-By-Hash: yes
Architectures: amd64 arm64
Components: updates/main updates/non-free
SHA256:
 {A}    376228 main/binary-amd64/Packages.xz
 {B}    2513441 main/binary-amd64/Packages
 {B}    12 non-free/binary-amd64/Packages
"""


def test_the_security_archive_as_it_is() -> None:
    found = release_file.parse(SECURITY, name="InRelease")
    assert found.codename == "bookworm-security"
    assert found.date == datetime(2026, 11, 18, 22, 17, 41, tzinfo=timezone.utc)
    assert release_file.iso(found.valid_until) == "2026-11-25T22:17:41Z"
    assert found.by_hash
    assert found.automatic
    assert found.index("main", "amd64") == (
        "main/binary-amd64/Packages.xz",
        release_file.Digest(sha256=A, size=376228),
    )
    assert found.index("updates/main", "amd64") == found.index("main", "amd64")
    assert found.index("non-free", "amd64") == (
        "non-free/binary-amd64/Packages",
        release_file.Digest(sha256=B, size=12),
    )
    assert found.index("main", "arm64") is None


def test_backports_ask_not_to_be_used_by_themselves() -> None:
    assert not release_file.parse(
        SECURITY.replace("Origin: Debian", "NotAutomatic: yes"), name="InRelease"
    ).automatic
    assert (
        release_file.iso(
            release_file.parse(SECURITY.replace("Valid-Until", "X-Until"), name="InRelease").valid_until
        )
        == ""
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>captive portal</html>\n: x",
        *(SECURITY.replace(what, by) for what, by in (("Date", "X"), (A, "xyz"), ("Nov", "Foo"))),
    ],
)
def test_what_is_no_release_file(text: str) -> None:
    with pytest.raises(InputError):
        release_file.parse(text, name="InRelease")


DEB822 = """\
Types: deb deb-src
# a comment
URIs: http://mirror.site/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.site/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://off.site/debian
Suites: bookworm
Enabled: no

Types: deb-src
URIs: http://sources.site/debian
Suites: bookworm
"""
ONE_LINE = """\
# deb http://commented.site/debian bookworm main
deb-src http://sources.site/debian bookworm main
deb [arch=amd64 signed-by=/etc/a.gpg,/etc/b.gpg] http://mirror.site/debian/ bookworm main contrib # note
deb http://security.site/debian-security stable-security main
deb cdrom:[Debian]/ bookworm main
"""


def test_deb822_sources() -> None:
    keyring = (Path("/usr/share/keyrings/debian-archive-keyring.gpg"),)
    assert parse_sources(DEB822) == [
        AptSource(uri="http://mirror.site/debian", suite="bookworm", components=("main",), signed_by=keyring),
        AptSource(
            uri="http://mirror.site/debian", suite="bookworm-updates", components=("main",), signed_by=keyring
        ),
        AptSource(uri="http://mirror.site/debian-security", suite="bookworm-security", components=("main",)),
    ]


def test_one_line_sources() -> None:
    first, second, *_ = parse_list(ONE_LINE, Path("/root"))
    keys = (Path("/root/etc/a.gpg"), Path("/root/etc/b.gpg"))
    assert first == AptSource(
        uri="http://mirror.site/debian",
        suite="bookworm",
        components=("main", "contrib"),
        signed_by=keys,
        archs=("amd64",),
    )
    assert second == AptSource(
        uri="http://security.site/debian-security", suite="stable-security", components=("main",)
    )


def test_a_malformed_file_is_skipped() -> None:
    assert parse_sources("Types deb\n") == []


def signed_everywhere() -> str:
    """The sources with a keyring for the security archive too."""
    keyring = "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"
    return DEB822.replace("Suites: bookworm-security", f"Suites: bookworm-security\n{keyring}")


def machine(text: str = DEB822, distribution: str = "debian") -> Machine:
    return Machine(id=distribution, codename="bookworm", sources=tuple(parse_sources(text)))


@pytest.mark.parametrize(
    ("codename", "suite", "expected"),
    [
        ("bookworm", "bookworm", "http://mirror.site/debian"),
        ("bookworm", "bookworm-security", "http://mirror.site/debian-security"),
        ("bookworm", "bookworm-backports", "http://mirror.site/debian"),
        ("trixie", "trixie", "http://mirror.site/debian"),
        ("trixie", "trixie-updates", "http://mirror.site/debian"),
        ("trixie", "trixie-security", "http://mirror.site/debian-security"),
    ],
)
def test_where_a_suite_is_by_the_machines_own_configuration(codename: str, suite: str, expected: str) -> None:
    source = machine().find("debian", codename, suite, "main")
    assert source is not None
    assert source.uri == expected


def test_stable_is_a_name_too() -> None:
    source = machine(DEB822.replace("bookworm", "oldstable")).find(
        "debian", "bookworm", "bookworm-security", "main"
    )
    assert source is not None
    assert source.uri.endswith("debian-security")


@pytest.mark.parametrize("distribution", ["ubuntu", "rhel", ""])
def test_another_distributions_configuration_says_nothing(distribution: str) -> None:
    assert machine(distribution=distribution).find("debian", "bookworm", "bookworm", "main") is None


@pytest.mark.parametrize(
    "vendor", ["https://docker.site/debian bookworm stable", "https://browser.site/deb stable main"]
)
@pytest.mark.parametrize("suite", ["bookworm", "bookworm-backports", "trixie"])
def test_a_vendors_repository_that_calls_itself_like_a_suite_is_not_the_distributions(
    vendor: str, suite: str
) -> None:
    sources = (*parse_list(f"deb {vendor}"), *parse_sources(DEB822))
    source = Machine(id="debian", codename="bookworm", sources=sources).find(
        "debian", suite.partition("-")[0], suite, "main"
    )
    assert source is not None
    assert source.uri == "http://mirror.site/debian"


ROW = sample_matrix().rows[0]
KEY = (Path("/keys/site.gpg"),)


def located(
    mirrors: dict[str, str], machine: Machine, keyrings: tuple[Path, ...] = KEY
) -> tuple[Location, Location]:
    now = datetime(2026, 11, 20, tzinfo=timezone.utc)
    settings = Settings(now=now, machine=machine, mirrors=mirrors, keyrings=[("", one) for one in keyrings])
    main, security = locate(ROW, "amd64", settings)
    return main, security


@pytest.mark.parametrize(
    ("mirrors", "main", "security"),
    [
        ({}, "http://mirror.site/debian", "http://mirror.site/debian-security"),
        ({"debian12": "http://other/debian/"}, "http://other/debian", "http://other/debian-security"),
        ({"debian12": "file:///srv/copy"}, "file:///srv/copy", "file:///srv/debian-security"),
        (
            {"debian12": "http://other/remote", "debian12/bookworm-security": "http://other/sec/"},
            "http://other/remote",
            "http://other/sec",
        ),
        (
            {"debian13": "http://other/debian"},
            "http://mirror.site/debian",
            "http://mirror.site/debian-security",
        ),
    ],
)
def test_a_given_mirror_wins(mirrors: dict[str, str], main: str, security: str) -> None:
    found = located(mirrors, machine())
    assert [location.uri for location in found] == [main, security]
    assert found[1].folder == f"{security}/dists/bookworm-security"


def test_no_address_is_built_in() -> None:
    with pytest.raises(Unavailable) as told:
        located({}, Machine(id="fedora", codename=""))
    assert "--mirror debian12=" in told.value.resolution


def test_keys_come_from_the_option_or_the_source() -> None:
    assert located({}, machine())[0].keyrings == KEY
    assert located({}, machine(signed_everywhere()), keyrings=())[0].keyrings == (
        Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    )
    with pytest.raises(Unavailable, match="who may sign"):
        located({"debian12": "http://other/debian"}, Machine(), keyrings=())


class Unsigned:
    """A repository's host that says what everybody may say."""

    def dated_document(self, _: str) -> DatedDocument:
        return DatedDocument(body=b"Origin: anybody", last_read=LastRead(fresh=True, time=""))


def test_a_vendors_repository_without_keys_is_nowhere() -> None:
    vendors = "      - {id: cuda, urls: ['https://files.site/x'], role: extra, keyring: /nowhere/k.gpg}\n"
    row = sample_matrix(MATRIX.replace("    kernels:\n", f"{vendors}    kernels:\n", 1)).rows[0]
    settings = Settings(
        now=datetime(2026, 11, 20, tzinfo=timezone.utc), machine=machine(signed_everywhere()), mirrors={}
    )
    place = locate(row, "amd64", settings)[-1]
    with pytest.raises(Nowhere, match="nothing says who may sign the repository cuda") as told:
        place.read(cast(Any, Unsigned()), settings)
    assert "/nowhere/k.gpg is not on this machine" in told.value.details


UBUNTU = next(row for row in load_matrix().rows if row.id == "ubuntu24.04")
SOURCES = """\
deb http://archive.site/ubuntu noble main restricted universe
deb http://security.site/ubuntu noble-security main restricted universe
"""
PORTS = "deb [arch=arm64] http://ports.site/ubuntu-ports noble main restricted universe\n"


def of_ubuntu(arch: Arch, mirrors: dict[str, str], sources: str = "") -> dict[str, str]:
    host = Machine(id="ubuntu", codename="noble", sources=tuple(parse_list(sources)))
    settings = Settings(
        now=datetime(2026, 11, 20, tzinfo=timezone.utc),
        machine=host,
        mirrors=mirrors,
        keyrings=[("", one) for one in KEY],
    )
    places = locate(UBUNTU.without_vendors().on(arch), arch, settings)
    return {place.id: place.uri for place in places}


@pytest.mark.parametrize(
    ("arch", "mirrors", "expected"),
    [
        ("amd64", {"ubuntu24.04": "http://m/ubuntu"}, "http://m/ubuntu"),
        ("arm64", {"ubuntu24.04": "http://m/ubuntu/"}, "http://m/ubuntu-ports"),
        ("arm64", {"ubuntu24.04": "http://m/ubuntu-ports"}, "http://m/ubuntu-ports"),
        ("amd64", {"ubuntu24.04": "http://m/ubuntu-ports"}, "http://m/ubuntu"),
        ("arm64", {"ubuntu24.04": "http://m/all-of-it"}, "http://m/all-of-it"),
        ("arm64", {"ubuntu24.04": "http://m/ubuntu", "ubuntu24.04-arm64": "http://p/x"}, "http://p/x"),
        ("amd64", {"ubuntu24.04": "http://m/ubuntu", "ubuntu24.04-arm64": "http://p/x"}, "http://m/ubuntu"),
    ],
)
def test_ubuntus_other_architectures_are_in_an_archive_of_their_own(
    arch: Arch, mirrors: dict[str, str], expected: str
) -> None:
    pockets = ("noble", "noble-updates", "noble-security")
    assert of_ubuntu(arch, mirrors) == dict.fromkeys(pockets, expected)


def test_one_suite_of_one_architecture_may_be_elsewhere() -> None:
    mirrors = {"ubuntu24.04": "http://m/ubuntu", "ubuntu24.04-arm64/noble-updates": "http://p/updates"}
    assert of_ubuntu("arm64", mirrors)["noble-updates"] == "http://p/updates"
    assert of_ubuntu("amd64", mirrors)["noble-updates"] == "http://m/ubuntu"


def test_the_machines_archive_is_not_taken_for_another_architectures() -> None:
    assert of_ubuntu("amd64", {}, SOURCES)["noble-security"] == "http://security.site/ubuntu"
    assert set(of_ubuntu("arm64", {}, SOURCES).values()) == {"http://ports.ubuntu.com/ubuntu-ports"}
    ports = PORTS + PORTS.replace("noble", "noble-security")
    assert set(of_ubuntu("arm64", {}, SOURCES + ports).values()) == {"http://ports.site/ubuntu-ports"}


def test_without_any_configuration_the_rows_own_addresses_count() -> None:
    assert of_ubuntu("amd64", {}) == {
        "noble": "http://archive.ubuntu.com/ubuntu",
        "noble-updates": "http://archive.ubuntu.com/ubuntu",
        "noble-security": "http://security.ubuntu.com/ubuntu",
    }


def test_a_keyring_may_be_one_systems_alone() -> None:
    now = datetime(2026, 11, 20, tzinfo=timezone.utc)
    rings = [("debian12", Path("/keys/debian.gpg")), ("rocky9", Path("/keys/rocky.asc")), ("", KEY[0])]
    settings = Settings(now=now, machine=machine(), keyrings=rings)
    assert locate(ROW, "amd64", settings)[0].keyrings == (Path("/keys/debian.gpg"), *KEY)
