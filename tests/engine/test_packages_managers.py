"""What dnf and zypper hand on from a mirror, and what they refuse themselves.

Packages, keys, indexes and the two programs are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_driver.packages import (
    PackageAccess,
    PackageManager,
    PackageRequest,
    RepositoryAttempt,
    dnf,
    zypper,
)
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.subprocesses import SystemCommands
from support import aptfetch
from support.fakes.mockpath import MockPath
from support.process import require
from support.samples.aptrepo import SigningKey, served, signing_key
from support.samples.rpmrepo import Rpm, RpmHome, build, change, index, sign
from support.skipping import provided

DEVEL = Rpm(
    name="kernel-devel",
    version="5.14.0",
    release="427.13.1.el9_4",
    files={"/usr/src/kernels/5.14.0/Makefile": "all:"},
)
SETTINGS = """[t]
name=t
baseurl={url}
enabled=1
type=rpm-md
gpgcheck=0
"""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "vendor", algorithm="rsa2048") as made:
        yield made


@dataclass(frozen=True, slots=True)
class Manager:
    """A package manager with one repository: a folder."""

    program: PackageManager
    request: PackageRequest
    access: PackageAccess
    folder: Path

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def settings(self) -> Path:
        return self.folder / "repos.d/t.repo"

    def download(self) -> tuple[str, ...]:
        into = self.folder / "work/packages"
        into.mkdir(parents=True)
        return self.program.download(self.access, self.request, str(into))


def dnf_words(folder: Path) -> str:
    """dnf with its `download` command, which Debian has in a package that cannot stand beside zypper."""
    archive = aptfetch.archive()
    plugins = archive.unpacked([archive.newest("dnf-plugins-core", suite="bookworm")])
    python = plugins / "usr/lib/python3/dist-packages"
    (folder / "dnf.conf").write_text("[main]\n")
    places = {"reposdir": "repos.d", "cachedir": "cache", "persistdir": "persist", "logdir": "log"}
    options = [f"--setopt={name}={folder}/{place}" for name, place in places.items()]
    return " ".join(
        [
            f"PYTHONPATH={python} exec /usr/bin/dnf --config={folder}/dnf.conf",
            f"--setopt=pluginpath={python}/dnf-plugins",
            *options,
        ]
    )


def zypper_words(folder: Path) -> str:
    return (
        f"ZYPP_LOCKFILE_ROOT={folder} exec /usr/bin/zypper --reposd-dir {folder}/repos.d "
        f"--cache-dir {folder}/cache"
    )


NEVRA = DEVEL.file_name.removesuffix(".rpm")
PROGRAMS: dict[str, tuple[PackageManager, Callable[[Path], str], PackageRequest]] = {
    "dnf": (
        dnf,
        dnf_words,
        PackageRequest(names=(NEVRA,), attempts=(RepositoryAttempt(name="release 9", releasever="9"),)),
    ),
    "zypper": (
        zypper,
        zypper_words,
        PackageRequest(names=(f"{DEVEL.name}={DEVEL.version}-{DEVEL.release}",)),
    ),
}


@pytest.fixture(params=PROGRAMS)
def manager(request: pytest.FixtureRequest, tmp_path: Path, key: SigningKey) -> Manager:
    name = request.param
    provided(lambda: require(name, "createrepo_c", "rpmbuild", "rpm2cpio", "cpio"))
    program, words, wanted = PROGRAMS[name]
    (tmp_path / "repos.d").mkdir()
    (tmp_path / "repos.d/t.repo").write_text(SETTINGS.format(url=(tmp_path / "repository").as_uri()))
    tools = MockPath(tmp_path / "bin")
    tools.add(name, f'{provided(lambda: words(tmp_path))} "$@"')
    home = RpmHome.make(tmp_path / "home")
    home.trust(key)
    commands = SystemCommands(tools.environ(home.environ))
    access = PackageAccess(commands=commands, files=RootedFiles(), environ={})
    return Manager(program, wanted, access, tmp_path)


def test_a_signed_package_comes_through(manager: Manager, key: SigningKey) -> None:
    sign(build(DEVEL, manager.repository), key)
    index(manager.repository)
    (found,) = manager.download()
    assert found.endswith(f"/{DEVEL.file_name}")
    extracted = manager.program.extract(manager.access, found, str(manager.folder))
    assert (extracted.name, extracted.version) == (DEVEL.name, f"{DEVEL.version}-{DEVEL.release}")
    assert (manager.folder / "usr/src/kernels/5.14.0/Makefile").read_text() == "all:"


def test_a_repository_that_has_nothing_to_do_with_it_may_be_away(manager: Manager, key: SigningKey) -> None:
    sign(build(DEVEL, manager.repository), key)
    index(manager.repository)
    away = SETTINGS.format(url="http://127.0.0.1:9/").replace("=t\n", "=away\n").replace("[t]", "[away]")
    (manager.settings.parent / "away.repo").write_text(away + "skip_if_unavailable=0\n")
    (found,) = manager.download()
    assert found.endswith(f"/{DEVEL.file_name}")


def test_an_unsigned_package_is_refused(manager: Manager) -> None:
    """The index agrees with it, and neither program asks for more when it downloads."""
    build(DEVEL, manager.repository)
    index(manager.repository)
    with pytest.raises(InputError, match="header package without a signature"):
        manager.download()


def test_a_package_of_an_unknown_key_is_refused(manager: Manager, stranger: SigningKey) -> None:
    sign(build(DEVEL, manager.repository), stranger)
    index(manager.repository)
    with pytest.raises(InputError, match="a key that this image does not know"):
        manager.download()


def test_a_package_changed_together_with_its_index_is_refused(manager: Manager, key: SigningKey) -> None:
    change(sign(build(DEVEL, manager.repository), key))
    index(manager.repository)
    with pytest.raises(InputError, match="header package changed after it was signed"):
        manager.download()


@pytest.mark.parametrize("remote", [False, True], ids=["folder", "http"])
def test_a_package_changed_behind_its_index_is_no_problem_of_the_network(
    manager: Manager, key: SigningKey, remote: bool
) -> None:
    package = sign(build(DEVEL, manager.repository), key)
    index(manager.repository)
    change(package)
    with served(manager.repository) as server:
        if remote:
            manager.settings.write_text(SETTINGS.format(url=server.url))
        with pytest.raises(InputError, match="the mirror gives a file that differs from its index"):
            manager.download()


def test_an_index_that_a_repository_wants_signed_and_nobody_signed(manager: Manager, key: SigningKey) -> None:
    sign(build(DEVEL, manager.repository), key)
    index(manager.repository)
    with (manager.settings).open("a") as settings:
        settings.write("repo_gpgcheck=1\n")
    with pytest.raises(InputError, match="header packages cannot be verified"):
        manager.download()
