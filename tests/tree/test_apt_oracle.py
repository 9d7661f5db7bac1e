"""Our closure against apt's own resolver, on a local repository and an empty system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from driverforge_build.discover.apt.stanzas import new_index, parse_clause
from driverforge_build.discover.apt.suite import Location, read_packages, read_suite
from driverforge_build.discover.closure import closure
from driverforge_build.discover.offered import PackageIndex
from driverforge_build.matrix.repository import Repository
from support.fakes.mirror import fetcher
from support.process import missing, run
from support.samples.aptrepo import EPOCH, Archive, Deb, signing_key
from support.samples.sampledebian import BASE, DRIVER_PARTS, SECURITY

PROGRAMS = ("apt-get", "gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)

SHAPES = (
    Deb(name="deep", version="1", depends="middle (>= 1:2), libc6"),
    Deb(name="middle", version="1:2.0~rc1-1"),
    Deb(name="middle", version="1:2.0-1", depends="perl-base:any, debconf (>= 0.5) | debconf-2.0"),
    Deb(name="perl-base", version="5.36", fields={"Multi-Arch": "allowed"}),
    Deb(name="cdebconf", version="1", fields={"Provides": "debconf-2.0"}),
    Deb(name="chooses", version="1", depends="nowhere | default-mta | mail-transport-agent, needs-postfix"),
    Deb(name="needs-postfix", version="1", depends="postfix"),
    Deb(name="exim", version="1", fields={"Provides": "mail-transport-agent"}),
    Deb(name="postfix", version="1", fields={"Provides": "mail-transport-agent, default-mta"}),
    Deb(name="versioned", version="1", depends="python3-abi (= 3.11)"),
    Deb(name="python3.11-abi", version="9", fields={"Provides": "python3-abi (= 3.11)"}),
    Deb(name="python3.10-abi", version="9", fields={"Provides": "python3-abi (= 3.10)"}),
    Deb(
        name="early",
        version="1",
        fields={"Pre-Depends": "late", "Recommends": "unwanted", "Suggests": "unwanted"},
    ),
    Deb(name="late", version="1", arch="all", depends="libc6"),
    Deb(name="unwanted", version="1"),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    folder = tmp_path_factory.mktemp("oracle")
    with signing_key(folder / "key") as key:
        made = Archive(folder / "debian", key)
        made.publish("bookworm", {"main": [*BASE, *SHAPES], "non-free": list(DRIVER_PARTS)})
        made.publish("bookworm-security", {"main": list(SECURITY)})
        made.publish(
            "bookworm-backports",
            {
                "main": [
                    Deb(name="make", version="9"),
                    Deb(name="only-backports", version="1", depends="make"),
                ]
            },
            fields={"NotAutomatic": "yes", "ButAutomaticUpgrades": "yes"},
        )
        yield made


@pytest.fixture(scope="module")
def catalogue(archive: Archive) -> PackageIndex:
    found = new_index()
    downloads = fetcher(archive.folder.parent / "cache")
    for suite, components in (
        ("bookworm", ("main", "non-free")),
        ("bookworm-security", ("main",)),
        ("bookworm-backports", ("main",)),
    ):
        row = Repository(id=suite, archive="debian", components=components)
        place = Location(repository=row, uri=archive.url, keyrings=(archive.key.keyring,))
        read_packages(downloads, read_suite(downloads, place, now=EPOCH + timedelta(days=1)), "amd64", found)
    return found


@pytest.fixture(scope="module")
def apt(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """apt-get with folders of its own and an empty status file."""
    root = tmp_path_factory.mktemp("apt")
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    option = f"[arch=amd64 signed-by={archive.key.keyring}]"
    lines = [
        f"deb {option} {archive.url} {suite} main"
        for suite in ("bookworm", "bookworm-security", "bookworm-backports")
    ]
    (root / "sources.list").write_text(
        "\n".join([*lines, f"deb {option} {archive.url} bookworm non-free", ""])
    )
    settings = {
        "APT::Architecture": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
        "Dir::Cache": root / "cache",
        "Dir::Etc::PreferencesParts": root / "parts",
        "Dir::Etc::SourceList": root / "sources.list",
        "Dir::Etc::SourceParts": root / "parts",
        "Dir::State::Lists": root / "lists",
        "Dir::State::status": root / "status",
        "Acquire::Check-Date": "false",
    }
    config = root / "apt.conf"
    config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    command = ("env", f"APT_CONFIG={config}", "apt-get", "-q")
    run(*command, "update")
    return command


def simulated(apt: Sequence[str], roots: Sequence[str]) -> set[str]:
    """What apt would install: 'Inst libc6 (2.36-9 Debian:... [amd64])'."""
    told = run(*apt, "--simulate", "install", *roots).stdout
    words = [line.split() for line in told.splitlines() if line.startswith("Inst ")]
    return {f"{line[1].partition(':')[0]}={line[2].removeprefix('(')}" for line in words}


@pytest.mark.parametrize(
    "roots",
    [
        ["python3", "kmod"],
        ["make", "gcc-12", "linux-kbuild-6.1"],
        ["deep"],
        ["chooses"],
        ["versioned"],
        ["early"],
        ["only-backports"],
        ["nvidia-modprobe", "libnvidia-ml1"],
        ["linux-image-6.1-cloud-amd64", "linux-headers-6.1.0-53-cloud-amd64"],
    ],
    ids=lambda roots: roots[0],
)
def test_the_same_packages_as_apt(apt: Sequence[str], catalogue: PackageIndex, roots: list[str]) -> None:
    ours = closure(catalogue, [parse_clause(root) for root in roots])
    assert {f"{package.name}={package.version}" for package in ours} == simulated(apt, roots)


def test_apt_takes_what_the_lock_pins(apt: Sequence[str], catalogue: PackageIndex, archive: Archive) -> None:
    """With a driver's versions named, apt is content with our set, and its addresses are our pool paths."""
    roots = [parse_clause("libcuda1 (= 535.261.03-1)")]
    ours = closure(catalogue, roots, upstream="535.261.03")
    named = [f"{package.name}={package.version}" for package in ours]
    told = run(*apt, "--print-uris", "install", *named).stdout
    addresses = {line.split("'")[1] for line in told.splitlines() if line.startswith("'file:")}
    assert addresses == {f"file:{archive.folder}/{package.path}" for package in ours}
