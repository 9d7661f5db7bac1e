"""What the compile cache recalls, and what it must never recall."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_driver.compile.kernelname import release_in
from driverforge_driver.compile.memory import MAX_FILES, Digests, Memory, Place
from driverforge_host.adapters.files import RootedFiles

AUTOCONF = '/* Linux/x86 {version} */\n#define CONFIG_BUILD_SALT "{release}"\n#define CONFIG_SMP 1\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A cache, and kernels' headers in folders whose names carry the release."""

    folder: Path

    def headers(self, release: str) -> Path:
        folder = self.folder / f"headers-{release}"
        if not folder.exists():
            (folder / "include/generated").mkdir(parents=True)
            (folder / "include/mm.h").write_text("int mm(void);\n")
            (folder / "include/salt.h").write_text("CONFIG_BUILD_SALT\n")
            (folder / "include/generated/utsrelease.h").write_text(f'#define UTS_RELEASE "{release}"\n')
            (folder / "include/generated/autoconf.h").write_text(
                AUTOCONF.format(version=release, release=release)
            )
        return folder

    def memory(self, release: str = "one", *, context: str = "c" * 64) -> Memory:
        place = Place(folders={str(self.headers(release)): "@OUTPUT@"}, context=context)
        files = RootedFiles("/")
        digests = Digests(files=files, release=release)
        return Memory(files, str(self.folder / "kept"), place, digests)

    def read(self, *names: str, release: str = "one") -> list[str]:
        return [str(self.headers(release) / "include" / name) for name in names]

    def files(self) -> list[Path]:
        return sorted((self.folder / "kept/answers").iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A cache that knows one answer, which depended on mm.h and the configuration."""
    made = Bench(folder=tmp_path)
    memory = made.memory()
    memory.learn("question", "yes", reads=made.read("mm.h", "generated/autoconf.h"))
    memory.keep()
    return made


def test_the_same_headers_give_the_answer(bench: Bench) -> None:
    assert bench.memory().recall("question") == "yes"
    assert bench.memory().recall("another") is None


def test_a_kernel_that_differs_in_its_name_alone_shares_it(bench: Bench) -> None:
    assert bench.memory("two").recall("question") == "yes"


def test_the_release_below_the_answers_of_conftest_is_no_difference(bench: Bench) -> None:
    for release, define in (("one", "A"), ("two", "A"), ("three", "B")):
        folder = bench.headers(release) / "include/conftest"
        folder.mkdir()
        (folder / "functions.h").write_text(f'#define {define}\n// Kernel version: "{release}"\n')
    memory = bench.memory()
    memory.learn("of an answer", "yes", reads=bench.read("conftest/functions.h"))
    memory.keep()
    assert bench.memory("two").recall("of an answer") == "yes"
    assert bench.memory("three").recall("of an answer") is None


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("int mm(void);\n", True),
        ("int uts_release, MY_UTS_RELEASE;\n", True),
        ("char name[] = UTS_RELEASE;\n", False),
        ("#define PASTED(word) UTS_ ## word\n", False),
        ("#define PASTED(word) word ## _RELEASE\n", False),
        ("#define PASTED(word) UTS##word\n", False),
        ("#define PASTED(word) UTS%:%:word\n", False),
        ("#define PASTED(word) word %:%: RELEASE\n", False),
        ("#define PASTED(word) MY_UTS ## word ## RELEASED\n", True),
        ("char name[] = PASTED(UTS_, RELEASE);\n", False),
    ],
)
def test_the_header_with_the_release_counts_for_whom_it_is_used(
    bench: Bench, text: str, shared: bool
) -> None:
    for release in ("one", "two"):
        (bench.headers(release) / "include/nv.h").write_text(text)
    memory = bench.memory()
    memory.learn("with it", "yes", reads=bench.read("nv.h", "generated/utsrelease.h"))
    memory.keep()
    assert bench.memory().recall("with it") == "yes"
    assert (bench.memory("two").recall("with it") == "yes") is shared


def test_the_header_with_the_release_of_another_kernel_counts_as_it_is(bench: Bench) -> None:
    (bench.headers("two") / "include/generated/utsrelease.h").write_text('#define UTS_RELEASE "three"\n')
    memory = bench.memory()
    memory.learn("with it", "yes", reads=bench.read("mm.h", "generated/utsrelease.h"))
    memory.keep()
    assert bench.memory("two").recall("with it") is None


def test_an_answer_of_conftest_that_uses_the_name_counts_with_it(bench: Bench) -> None:
    for release in ("one", "two"):
        folder = bench.headers(release) / "include/conftest"
        folder.mkdir()
        (folder / "generic.h").write_text("#define NAME UTS_RELEASE\n")
    memory = bench.memory()
    memory.learn("with it", "yes", reads=bench.read("conftest/generic.h"))
    memory.keep()
    assert bench.memory("two").recall("with it") is None


@pytest.mark.parametrize("header", [b'#define UTS_RELEASE "6.1.0-\xff"\n', b"#define UTS_RELEASE NAME\n"])
def test_a_release_that_is_not_said_plainly_is_none(header: bytes) -> None:
    assert release_in(header) == ""


def test_what_else_the_header_with_the_release_says_counts_for_all(bench: Bench) -> None:
    """Ubuntu's has the number of the ABI."""
    for release, abi in (("one", 59), ("two", 60)):
        with (bench.headers(release) / "include/generated/utsrelease.h").open("a") as file:
            file.write(f"#define UTS_UBUNTU_RELEASE_ABI {abi}\n")
    memory = bench.memory()
    memory.learn("with it", "yes", reads=bench.read("mm.h", "generated/utsrelease.h"))
    memory.keep()
    assert bench.memory().recall("with it") == "yes"
    assert bench.memory("two").recall("with it") is None


def test_an_answer_to_a_question_with_the_name_is_not_kept(bench: Bench) -> None:
    memory = bench.memory()
    memory.learn("of the name", "yes", reads=bench.read("mm.h"), named=True)
    assert memory.recall("of the name") == "yes"
    memory.keep()
    assert bench.memory().recall("of the name") is None


def test_a_changed_header_is_asked_again(bench: Bench) -> None:
    (bench.headers("two") / "include/mm.h").write_text("int mm(int);\n")
    assert bench.memory("two").recall("question") is None
    assert bench.memory("one").recall("question") == "yes"


def test_a_header_that_is_gone_is_asked_again(bench: Bench) -> None:
    (bench.headers("one") / "include/mm.h").unlink()
    assert bench.memory().recall("question") is None


def test_what_depended_on_a_file_that_was_not_there_is_asked_again(bench: Bench) -> None:
    """A path that was misread is no file either, and two missing files are no sameness."""
    memory = bench.memory()
    memory.learn("of a missing file", "yes", reads=bench.read("mm.h", "missing.h"))
    memory.keep()
    assert bench.memory().recall("of a missing file") is None
    assert bench.memory().recall("question") == "yes"


def test_a_file_that_make_wrote_later_counts_as_it_is_now(bench: Bench) -> None:
    memory = bench.memory()
    memory.learn("of a later file", "yes", reads=bench.read("later.h"))
    (bench.headers("one") / "include/later.h").write_text("1\n")
    memory.learn("of a later file", "yes", reads=bench.read("later.h"))
    memory.keep()
    assert bench.memory().recall("of a later file") == "yes"
    (bench.headers("one") / "include/later.h").write_text("2\n")
    assert bench.memory().recall("of a later file") is None


def test_other_configuration_is_asked_again(bench: Bench) -> None:
    path = bench.headers("two") / "include/generated/autoconf.h"
    path.write_text(path.read_text().replace("CONFIG_SMP", "CONFIG_UP"))
    assert bench.memory("two").recall("question") is None


def test_another_compiler_or_other_names_of_headers_are_asked_again(bench: Bench) -> None:
    assert bench.memory(context="d" * 64).recall("question") is None


def test_what_reads_the_kernels_name_is_not_kept(bench: Bench) -> None:
    memory = bench.memory()
    memory.learn("salted", "yes", reads=bench.read("salt.h"))
    assert memory.recall("salted") == "yes"
    memory.keep()
    assert bench.memory().recall("salted") is None


@pytest.mark.parametrize("damage", ["half", "changed", "empty", "foreign"])
def test_a_damaged_file_is_no_answer(bench: Bench, damage: str) -> None:
    (path,) = bench.files()
    data = path.read_bytes()
    path.write_bytes(
        {"half": data[: len(data) // 2], "changed": data[:-1] + b"x", "empty": b"", "foreign": b"{}"}[damage]
    )
    assert bench.memory().recall("question") is None


def test_what_a_kill_leaves_beside_the_files_is_not_read(bench: Bench) -> None:
    (path,) = bench.files()
    path.rename(path.with_name(f"{path.name}.driverforge-new"))
    assert bench.memory().recall("question") is None


def test_the_oldest_files_give_way(bench: Bench) -> None:
    (first,) = bench.files()
    os.utime(first, (1, 1))
    for number in range(MAX_FILES):
        memory = bench.memory()
        memory.learn(f"more {number}", "no", reads=bench.read("mm.h"))
        memory.keep()
    assert len(bench.files()) == MAX_FILES
    assert first not in bench.files()


def test_two_builds_at_once_keep_both(bench: Bench) -> None:
    first, second = bench.memory(), bench.memory()
    first.learn("of the first", "yes", reads=bench.read("mm.h"))
    second.learn("of the second", "no", reads=bench.read("mm.h"))
    first.keep()
    second.keep()
    assert bench.memory().recall("of the first") == "yes"
    assert bench.memory().recall("of the second") == "no"


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    kept = bench.folder / "kept"
    kept.rename(bench.folder / "elsewhere")
    kept.write_text("a file in its place")
    memory = bench.memory()
    memory.learn("question", "yes", reads=bench.read("mm.h"))
    memory.keep()
    assert "the compile cache is not written" in caplog.text
