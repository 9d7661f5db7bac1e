"""What conftest.sh wrote for one kernel is another one's, where all that it could read is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_driver.compile import whole
from driverforge_driver.compile.conftest import Outcome
from driverforge_driver.compile.memory import Digests, Memory, Place
from driverforge_driver.family.protocol import HeaderTree
from driverforge_host.adapters.real import real_host
from support.process import missing

pytestmark = pytest.mark.skipif(bool(missing("find", "sha256sum")), reason="needs find and sha256sum")

HOST = real_host()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Headers of Debian's shape, with its ways to name a kernel, and a driver's sources."""

    root: Path
    name: str
    version: str = "6.1.192-1"

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    @property
    def output(self) -> str:
        return f"usr/src/linux-headers-{self.name}-cloud-amd64"

    @property
    def source(self) -> str:
        return f"usr/src/linux-headers-{self.name}-common"

    def fill(self) -> Tree:
        release = f"{self.name}-cloud-amd64"
        self.write(f"{self.source}/include/linux/mm.h", "int mm;\n")
        for path, text in (
            ("Makefile", f"include {self.root}/{self.source}/Makefile\n"),
            (".kernelvariables", f"override KERNELRELEASE = {release}\n"),
            (".config", f'CONFIG_SMP=y\nCONFIG_BUILD_SALT="{release}"\n'),
            ("Module.symvers", "0x1 get_user_pages vmlinux EXPORT_SYMBOL\n"),
            ("include/config/kernel.release", "6.1.192\n"),
            ("include/config/auto.conf", f"CONFIG_SMP=y\nCONFIG_BUILD_SALT={release}\n"),
            (
                "include/generated/autoconf.h",
                f'#define CONFIG_SMP 1\n#define CONFIG_BUILD_SALT "{release}"\n',
            ),
            ("include/generated/utsrelease.h", f'#define UTS_RELEASE "{release}"\n'),
            ("include/generated/utsversion.h", f'#define UTS_VERSION "#1 SMP Debian {self.version}"\n'),
            ("include/generated/package.h", f'#define LINUX_PACKAGE_ID " Debian {self.version}"\n'),
        ):
            self.write(f"{self.output}/{path}", text)
        self.write("nvidia/conftest.sh", "echo\n")
        self.write("nvidia/nv.c", "int nv;\n")
        self.write("nvidia/nv-kernel.o_binary", self.name)
        return self

    @property
    def digest(self) -> str:
        folder = str(self.root)
        headers = HeaderTree(root=folder, source=f"{folder}/{self.source}", output=f"{folder}/{self.output}")
        return whole.everything(HOST, headers, [f"{folder}/nvidia"], f"{folder}/nvidia/conftest.sh")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(root=tmp_path / "one", name="6.1.0-55").fill()


def test_kernels_that_differ_in_their_name_are_the_same(tree: Tree, tmp_path: Path) -> None:
    other = Tree(root=tmp_path / "another", name="6.1.0-56", version="6.1.192-2").fill()
    assert tree.digest
    assert tree.digest == other.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.write(f"{tree.source}/include/linux/mm.h", "long mm;\n"),
        lambda tree: tree.write(
            f"{tree.output}/Module.symvers", "0x1 get_user_pages vmlinux EXPORT_SYMBOL_GPL"
        ),
        lambda tree: tree.write(f"{tree.output}/.config", "CONFIG_SMP=n\n"),
        lambda tree: tree.write(f"{tree.output}/include/config/kernel.release", "6.1.193\n"),
        lambda tree: tree.write(f"{tree.output}/include/generated/compile.h", "#define LINUX_COMPILER 1\n"),
        lambda tree: tree.write("nvidia/nv.c", "long nv;\n"),
        lambda tree: tree.write("nvidia/conftest.sh", "echo 1\n"),
    ],
    ids=["a header", "a symbol", "an option", "a version", "a new file", "a source", "the script"],
)
def test_whatever_the_script_could_read_is_another_question(
    tree: Tree, change: Callable[[Tree], None]
) -> None:
    before = tree.digest
    assert tree.digest == before
    change(tree)
    assert tree.digest != before


@pytest.mark.parametrize("word", ["CONFIG_BUILD_SALT", "generated/utsversion.h", "generated/package.h"])
def test_a_script_that_looks_for_what_is_left_out_runs(tree: Tree, word: str) -> None:
    tree.write("nvidia/conftest.sh", f"grep {word}\n")
    assert tree.digest == ""


def test_a_folder_that_cannot_be_read_to_its_end_is_no_question(tree: Tree) -> None:
    (tree.root / tree.source / "again").symlink_to(".")
    assert tree.digest == ""


def test_sources_without_a_script_are_no_question(tree: Tree) -> None:
    (tree.root / "nvidia/conftest.sh").unlink()
    assert tree.digest == ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A work folder in which the script wrote, and the cache beside it."""

    folder: Path

    @property
    def work(self) -> str:
        return str(self.folder / "work")

    def memory(self, release: str) -> Memory:
        place = Place(folders={self.work: "@WORK@"}, context="c" * 64)
        digests = Digests(files=HOST.files, release=release)
        return Memory(HOST.files, str(self.folder / "kept"), place, digests)

    @property
    def release(self) -> Path:
        return self.folder / "headers/include/generated/utsrelease.h"

    def keep(self, *, read: str = "int mm;\n", asked: str = "present") -> None:
        """A build for 6.1.0-55 with two probes.

        One compiled with a header and with what the script wrote itself, one `asked` with the header that
        has the kernel's name.
        """
        written = self.folder / "work/conftest"
        written.mkdir(parents=True)
        (written / "uts_release").write_text("// Kernel version: 6.1.0-55\n")
        (written / "headers.h").write_text("#define A\n// Kernel version: 6.1.0-55\n")
        (written / "functions.h").write_text("#undef B\n")
        (self.folder / "mm.h").write_text(read)
        memory = self.memory("6.1.0-55")
        reads = [str(self.folder / "mm.h"), str(written / "headers.h")]
        memory.learn("probe f c 1", "yes", reads=reads)
        self.release.parent.mkdir(parents=True)
        self.release.write_text('#define UTS_RELEASE "6.1.0-55"\n')
        memory.learn(f"probe f {asked} 2", "yes", reads=[str(self.release)])
        outcome = Outcome(headers={}, compiled=1, remembered=0, kind="probe f ")
        whole.learn(HOST, memory, "all", outcome, output=str(self.folder / "headers"), work=self.work)
        memory.keep()
        for path in written.iterdir():
            path.unlink()

    def recall(self) -> Outcome | None:
        """A build for 6.1.0-56."""
        self.release.write_text('#define UTS_RELEASE "6.1.0-56"\n')
        return whole.recall(HOST, self.memory("6.1.0-56"), "all", name="6.1.0-56", work=self.work)


@pytest.fixture
def bench(tmp_path: Path) -> Build:
    return Build(folder=tmp_path)


def test_what_the_script_wrote_is_put_back_with_the_new_name(bench: Build) -> None:
    bench.keep(read="int mm;\n")
    found = bench.recall()
    assert found is not None
    assert found.headers == {"headers": "#define A\n// Kernel version: 6.1.0-56\n", "functions": "#undef B\n"}
    written = Path(bench.work, "conftest")
    assert (written / "headers.h").read_text() == found.headers["headers"]
    assert (written / "uts_release").read_text() == "// Kernel version: 6.1.0-56\n"


def test_make_finds_nothing_older_than_what_it_depends_on(bench: Build) -> None:
    bench.keep(read="int mm;\n")
    found = bench.recall()
    assert found is not None
    assert list(found.headers) == ["headers", "functions"]
    written = Path(bench.work, "conftest")
    names = ("uts_release", "headers.h", "functions.h")
    times = [(written / name).stat().st_mtime_ns for name in names]
    assert times == sorted(times)


def test_the_single_answers_are_kept_for_other_headers(bench: Build) -> None:
    bench.keep(read="int mm;\n")
    found = bench.recall()
    assert found is not None
    assert (found.compiled, found.remembered) == (0, 2)


def test_a_header_from_anywhere_that_changed_is_asked_again(bench: Build) -> None:
    """The compiler's own headers, for one: they are in none of the folders."""
    bench.keep(read="int mm;\n")
    (bench.folder / "mm.h").write_text("long mm;\n")
    assert bench.recall() is None


@pytest.mark.parametrize("asked", ["present", "c"])
@pytest.mark.parametrize(("read", "found"), [("int mm;\n", True), ("char mm[] = UTS_RELEASE;\n", False)])
def test_what_was_compiled_with_the_name_is_asked_again_where_it_is_used(
    bench: Build, asked: str, read: str, found: bool
) -> None:
    bench.keep(read=read, asked=asked)
    assert (bench.recall() is not None) is found


def test_what_rests_on_the_kernels_name_is_not_kept(bench: Build) -> None:
    bench.keep(read="CONFIG_BUILD_SALT\n")
    assert bench.recall() is None
