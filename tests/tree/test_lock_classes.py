"""Kernels of one class, from the packages to what `plan` and `explain` say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import load_lock
from driverforge_build.plan.classes import kernel_classes
from support.jsonschemas import check_document
from support.process import missing
from support.samples.aptrepo import Archive, Deb, Served, SigningKey, served, signing_key
from support.samples.nvidiasite import publish_releases
from support.samples.sampledebian import FOUR, THREE, kernel_debs, publish, write_matrix

PROGRAMS = ("gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
# made from one source, as Debian's 6.1.0-55 and -56; the one behind them is of another
FIRST, SECOND, THIRD = (f"6.1.0-{number}-cloud-amd64" for number in (55, 56, 57))
OLDEST = "6.1.0-50-cloud-amd64"
TARGET = "debian12-amd64"


def named(deb: Deb, release: str, symbols: str) -> Deb:
    """A header package with files that carry the kernel's name."""
    if deb.name != f"linux-headers-{release}":
        return deb
    tree = f"usr/src/{deb.name}"
    own = {
        f"{tree}/.config": f'CONFIG_X86=y\nCONFIG_BUILD_SALT="{release}"\n',
        f"{tree}/include/generated/utsrelease.h": f'#define UTS_RELEASE "{release}"\n',
        f"{tree}/Module.symvers": f"0x1\t{symbols}\tvmlinux\tEXPORT_SYMBOL\t\n",
    }
    return replace(deb, files={**deb.files, **own})


def kernels() -> Iterator[Deb]:
    for release, version, declaration, symbols in (
        (FIRST, "6.1.176-2", THREE, "kfree"),
        (SECOND, "6.1.176-3", THREE, "kfree"),
        (THIRD, "6.1.176-4", FOUR, "kmalloc"),
    ):
        yield from (named(deb, release, symbols) for deb in kernel_debs(release, version, declaration))


@dataclass(frozen=True, slots=True)
class Site:
    folder: Path
    server: Served
    keyring: Path
    out: Callable[[], str]

    @property
    def lock(self) -> Path:
        return self.folder / "site.lock.json"

    def run(self, command: str, *arguments: str) -> str:
        words = [command, *arguments, "--matrix", str(self.folder / "site.yaml"), "--lock", str(self.lock)]
        if command in ("lock", "watch"):
            words += ["--cache-dir", str(self.folder / "cache"), "--keyring", str(self.keyring)]
            words += [
                "--mirror",
                f"debian12={self.server.url}/debian",
                "--mirror",
                f"nvidia={self.server.url}",
            ]
        status = cli.run(words)
        told = self.out()
        assert status == 0, told
        return told

    def downloads(self) -> list[str]:
        return [
            line.rpartition("/")[2].partition("_")[0] for line in self.server.requests if "/pool/" in line
        ]


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, SigningKey]]:
    folder = tmp_path_factory.mktemp("mirror")
    with signing_key(tmp_path_factory.mktemp("key") / "k") as key:
        main, security = Archive(folder / "debian", key), Archive(folder / "debian-security", key)
        publish(main, security, extra=[*kernels()], newest=False)
        publish_releases(folder, {"535": ("lts branch", [("535.261.03", "2025-07-17")])})
        yield folder, key


@pytest.fixture
def site(
    tmp_path: Path, mirror: tuple[Path, SigningKey], capsys: pytest.CaptureFixture[str]
) -> Iterator[Site]:
    write_matrix(tmp_path)

    def out() -> str:
        captured = capsys.readouterr()
        return captured.out + captured.err

    with served(mirror[0]) as server:
        yield Site(tmp_path, server, mirror[1].keyring, out)


def explained(site: Site, release: str) -> list[str]:
    told = site.run("explain", f"{TARGET}-535.261.03-{release}").splitlines()
    (at,) = (number for number, line in enumerate(told) if line.startswith("  class:"))
    return [line.strip() for line in told[at : at + 2]]


def test_kernels_that_differ_in_their_names_alone_are_one_class(site: Site) -> None:
    site.run("lock", "--classes")
    told = site.run("plan", "--select", "debian12-*")
    assert f"{TARGET}: kernels of one class: {FIRST}, {SECOND}" in told
    assert told.count("kernels of one class") == 1
    assert "not known" not in told
    document = json.loads(site.run("plan", "--json"))
    check_document("plan", document)
    classes = document["targets"][TARGET]["classes"]
    assert [one["kernels"] for one in classes] == [[OLDEST], [FIRST, SECOND], [THIRD]]
    assert {one["compiler"] for one in classes} == {"gcc-12"}
    assert len({(one["headers"], one["config"], one["symvers"]) for one in classes}) == 3
    assert explained(site, SECOND)[0] == f"class: differs in its name alone from {FIRST}"
    assert explained(site, THIRD) == [
        "class: no other kernel that was looked into has the same headers, symbols and compiler",
        f"against {SECOND} differ: headers, Module.symvers",
    ]


def test_nothing_is_guessed_where_nobody_looked(site: Site) -> None:
    """Names and versions of packages say nothing, and nobody who did not ask is told to."""
    site.run("lock")
    told = site.run("plan", "--select", "debian12-*")
    assert "class" not in told
    assert json.loads(site.run("plan", "--json"))["targets"][TARGET]["classes"] == []
    assert (
        explained(site, FIRST)[0] == "class: not known; `driverforge lock --classes` reads what it is told by"
    )


def test_one_package_that_nobody_looked_into_leaves_the_class_open(site: Site) -> None:
    site.run("lock", "--classes")
    document = json.loads(site.lock.read_text())
    del document["targets"][TARGET]["header_digests"][f"linux-headers-{SECOND}=6.1.176-3"]
    site.lock.write_text(json.dumps(document))
    told = site.run("plan", "--select", "debian12-*")
    assert "kernels of one class" not in told
    assert (
        f"{TARGET}: classes not known (kernels: 1), to run: driverforge lock --matrix "
        f"{site.folder / 'site.yaml'} --lock {site.lock} --select 'debian12-amd64-*' --classes"
    ) in told
    assert f"differs in its name alone from {SECOND}" not in "".join(explained(site, FIRST))


def test_another_compiler_is_another_class(site: Site) -> None:
    site.run("lock", "--classes")
    target = load_lock(site.lock).targets[TARGET]
    other = replace(target.kernels[SECOND], compiler="gcc-13")
    found = kernel_classes(replace(target, kernels={**target.kernels, SECOND: other}))
    assert [one.kernels for one in found.found] == [(OLDEST,), (FIRST,), (SECOND,), (THIRD,)]


def test_each_package_is_downloaded_once_and_not_kept(site: Site) -> None:
    site.run("lock", "--classes")
    headers = [name for name in site.downloads() if name.startswith("linux-headers")]
    assert sorted(headers) == sorted({*headers})
    assert len(headers) == 8
    assert not [*site.folder.glob("cache/**/*.deb")]
    blobs = [path for path in site.folder.glob("cache/blobs/**/*") if path.is_file()]
    assert not [path for path in blobs if path.read_bytes().startswith(b"!<arch>")]
    first, asked = site.lock.read_bytes(), len(site.downloads())
    site.run("lock", "--classes")
    assert (site.lock.read_bytes(), len(site.downloads())) == (first, asked)


def test_a_package_of_several_kernels_is_none_of_theirs(site: Site) -> None:
    """With one of their names left out the lock's bytes would be a matter of chance."""
    site.run("lock", "--classes")
    kept = [json.loads(path.read_text()) for path in site.folder.glob("cache/headers/*.digests-*")]
    names = sorted(name for digests in kept for name in digests)
    # headers and common headers of each; linux-kbuild of the oldest is its own, the others share one
    own = ["6.1.0-50", *["6.1.0-50", "6.1.0-55", "6.1.0-56", "6.1.0-57"] * 2]
    assert names == ["", *sorted(own)]


def test_who_asked_once_need_not_ask_again(site: Site) -> None:
    """`lock --check` of a pipeline would find a change each time."""
    site.run("lock", "--classes")
    first = site.lock.read_bytes()
    site.run("lock", "--check")
    site.run("lock")
    assert site.lock.read_bytes() == first
    site.run("lock", "--no-classes")
    assert "header_digests" not in json.loads(site.lock.read_text())["targets"][TARGET]
    site.run("lock")
    assert "header_digests" not in json.loads(site.lock.read_text())["targets"][TARGET]


def test_watch_reads_no_package_for_it(site: Site) -> None:
    site.run("lock", "--classes")
    for path in site.folder.glob("cache/headers/*"):
        path.unlink()
    site.server.requests.clear()
    site.run("watch")
    assert not [name for name in site.downloads() if name.startswith("linux-headers-6.1.0-56-cloud")]
