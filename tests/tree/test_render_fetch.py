"""fetch-pinned, the script in a build that gets packages: what differs from its pin is refused, what is there
is not fetched again.

The package manager is a stand-in; test_render_mirror.py has Debian's, tests/engine builds with it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build import resources

MANAGER = """\
manager_has() { grep -qx "$1 $2" "$INSTALLED"; }
manager_get() {
	while read -r sha256 size repository path name version; do
		echo "$name" >>"$CALLS.get"
		echo "from http://user:secret@mirror.site/$path"
		mkdir -p "$store/$sha256"
		cp "$MIRROR/$path" "$store/$sha256/${path##*/}"
		if grep -rqs secret "$store"; then echo "$name" >>"$CALLS.leak"; fi
	done <"$1"
}
manager_install() { for file; do echo "${file##*/}" >>"$CALLS.install"; done; }
manager_unpack() { cp "$1" "$2/unpacked-${1##*/}"; }
"""


@dataclass(frozen=True, slots=True)
class Bench:
    folder: Path

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": "/usr/bin:/bin",
            "DRIVERFORGE_STORE": str(self.folder / "store"),
            "INSTALLED": str(self.folder / "installed"),
            "MIRROR": str(self.folder / "mirror"),
            "CALLS": str(self.folder / "calls"),
        }
        return subprocess.run(
            [self.folder / "scripts/fetch-pinned", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def pin(self, name: str, content: str = "", *, version: str = "1", sha256: str = "") -> str:
        """A package in the mirror; returns its line in a list."""
        file = self.folder / f"mirror/pool/{name}_{version}.deb"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content or name)
        digest = sha256 or hashlib.sha256(file.read_bytes()).hexdigest()
        return f"{digest} {file.stat().st_size} bookworm pool/{file.name} {name} {version}\n"

    def write(self, *lines: str) -> Path:
        (self.folder / "list").write_text("# a comment\n\n" + "".join(lines))
        return self.folder / "list"

    def calls(self, what: str) -> list[str]:
        log = self.folder / f"calls.{what}"
        return log.read_text().split() if log.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "scripts").mkdir()
    shutil.copy(resources.templates() / "scripts/fetch-pinned", tmp_path / "scripts")
    (tmp_path / "scripts/manager").write_text(MANAGER)
    (tmp_path / "installed").write_text("")
    return Bench(tmp_path)


def test_install_takes_what_is_missing_and_leaves_what_is_there(bench: Bench) -> None:
    (bench.folder / "installed").write_text("libc6 1\n")
    done = bench.run("install", bench.write(bench.pin("kmod"), bench.pin("libc6"), bench.pin("python3")))
    assert done.returncode == 0, done.stderr
    assert bench.calls("get") == ["kmod", "python3"]
    assert bench.calls("install") == ["kmod_1.deb", "python3_1.deb"]
    assert "2 of 2 packages to download, 0 MiB\n" in done.stdout


def test_nothing_is_installed_when_everything_is_there(bench: Bench) -> None:
    (bench.folder / "installed").write_text("kmod 1\n")
    assert bench.run("install", bench.write(bench.pin("kmod"))).returncode == 0
    assert bench.calls("get") == bench.calls("install") == []


def test_a_file_that_is_not_the_pinned_one_ends_the_build(bench: Bench) -> None:
    pin = bench.pin("kmod", sha256="0" * 64)
    done = bench.run("install", bench.write(pin))
    assert done.returncode == 1
    assert f"pool/kmod_1.deb is not the file that was pinned (sha256 {'0' * 64})" in done.stderr
    assert "next: if the mirror replaced it: driverforge lock" in done.stderr
    assert bench.calls("install") == []


def test_the_store_serves_the_second_build_and_a_damaged_file_in_it_is_fetched_again(bench: Bench) -> None:
    listed = bench.write(bench.pin("kmod"))
    for _ in range(2):
        assert bench.run("install", listed).returncode == 0
    assert bench.calls("get") == ["kmod"]
    (stored,) = (bench.folder / "store").glob("*/kmod_1.deb")
    stored.write_text("damaged")
    assert bench.run("install", listed).returncode == 0
    assert bench.calls("get") == ["kmod", "kmod"]
    assert stored.read_text() == "kmod"


def test_no_temporary_files_stay_in_the_store(bench: Bench) -> None:
    bench.run("install", bench.write(bench.pin("kmod")))
    bench.run("install", bench.write(bench.pin("other", sha256="1" * 64)))
    assert not list((bench.folder / "store").glob("tmp.*"))


def test_what_a_killed_build_left_in_the_store_is_removed(bench: Bench) -> None:
    left = bench.folder / "store/tmp.Kd83nx/given"
    left.parent.mkdir(parents=True)
    left.write_text("http://user:secret@mirror.site/debian *\n")
    assert bench.run("install", bench.write(bench.pin("kmod"))).returncode == 0
    assert not left.parent.exists()


def test_an_address_with_a_password_is_in_no_file_of_the_store_and_not_in_the_log(bench: Bench) -> None:
    good, gone = bench.pin("kmod"), bench.pin("gone", sha256="1" * 64)
    done = bench.run("install", bench.write(good, gone))
    assert done.returncode == 1
    assert bench.calls("get") == ["kmod", "gone"]
    assert bench.calls("leak") == []
    assert "secret" not in done.stdout + done.stderr


def test_extract_and_download_take_packages_that_are_installed_too(bench: Bench) -> None:
    (bench.folder / "installed").write_text("headers 1\n")
    listed = bench.write(bench.pin("headers"))
    assert bench.run("extract", listed, bench.folder / "tree").returncode == 0
    assert bench.run("download", listed, bench.folder / "debs").returncode == 0
    assert (bench.folder / "tree/unpacked-headers_1.deb").read_text() == "headers"
    assert (bench.folder / "debs/headers_1.deb").read_text() == "headers"


@pytest.mark.parametrize("line", ["abc 1 bookworm pool/x.deb x\n", "abc 1 bookworm pool/x.deb x 1 more\n"])
def test_a_damaged_list_is_refused(bench: Bench, line: str) -> None:
    done = bench.run("install", bench.write(line))
    assert done.returncode == 1
    assert "not six fields" in done.stderr


def test_download_that_fails_shows_what_the_manager_said(bench: Bench) -> None:
    pin = bench.pin("kmod")
    (bench.folder / "mirror/pool/kmod_1.deb").unlink()
    done = bench.run("install", bench.write(pin))
    assert done.returncode == 1
    assert "No such file" in done.stderr
    assert "from http://***@mirror.site/pool/kmod_1.deb" in done.stderr
    assert "next: if the mirror dropped it: driverforge lock" in done.stderr


@pytest.mark.parametrize("words", [("install",), ("extract", "LIST"), ("destroy", "LIST")])
def test_wrong_words_are_refused(bench: Bench, words: tuple[str, ...]) -> None:
    listed = bench.write(bench.pin("kmod"))
    assert bench.run(*[str(listed) if word == "LIST" else word for word in words]).returncode == 1
