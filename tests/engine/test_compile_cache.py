"""The compile cache in whole builds: real headers, compiler and Kbuild, sources of the shape of NVIDIA's.

How NVIDIA's own probes are answered is test_conftest_answers.py's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from driverforge_core.image import ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_driver.compile.job import BuildRequest, build
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host
from engine.test_modbuild_real import MAKEFILE, NV, UVM, request
from support.machines import kernels
from support.process import missing

pytestmark = pytest.mark.skipif(
    bool(missing("apt-get", "dpkg-deb", "make", "gcc")), reason="needs Debian's packages, make and gcc"
)

KBUILD = """NV_CONFTEST_CMD := /bin/sh $(src)/conftest.sh "$(CC)" x86_64 $(SYSSRC) $(SYSOUT)
NV_CONFTEST_CFLAGS = $(LINUXINCLUDE) $(KBUILD_CFLAGS) -I$(src) -DKBUILD_BASENAME=\\"\\#conftest1\\"
NV_HEADER_PRESENCE_TESTS = linux/mm.h linux/fence.h
NV_CONFTEST_FUNCTION_COMPILE_TESTS = has_get_user_pages has_nonsense
$(obj)/conftest/patches.h:
	@mkdir -p $(obj)/conftest; echo '// none' > $@
$(obj)/conftest/headers.h:
	@mkdir -p $(obj)/conftest; for name in $(NV_HEADER_PRESENCE_TESTS); do \\
	$(NV_CONFTEST_CMD) test_kernel_header '$(NV_CONFTEST_CFLAGS)' $$name; done > $@
$(obj)/conftest/functions.h: $(obj)/conftest/headers.h
	@$(NV_CONFTEST_CMD) compile_tests '$(NV_CONFTEST_CFLAGS)' $(NV_CONFTEST_FUNCTION_COMPILE_TESTS) > $@
obj-m := nvidia.o nvidia-uvm.o
nvidia-y := nvidia/nv.o
nvidia-uvm-y := nvidia-uvm/uvm.o nvidia-uvm/flagged.o
ccflags-y += -I$(src)/common -I$(src)
CFLAGS_nvidia-uvm/flagged.o := -DMADE_FOR=UTS_RELEASE
$(obj)/nvidia/nv.o: | $(obj)/conftest/patches.h $(obj)/conftest/functions.h
"""
CONFTEST = r"""#!/bin/sh
cd "$(dirname "$0")"
CC="$1"
verb=$5
CFLAGS=$6
shift 6
for name in "$@"; do
    if [ "$verb" = test_kernel_header ]; then
        word=undef
        if echo "#include <$name>" | $CC -E -M $CFLAGS - >/dev/null 2>&1; then word=define; fi
        echo "#$word HEADER_$name" | tr a-z/. A-Z__
        continue
    fi
    printf '#include <linux/mm.h>\nvoid conftest(void) { %s(); }\n' "${name#has_}" >conftest$$.c
    $CC $CFLAGS -c conftest$$.c >/dev/null 2>&1
    rm -f conftest$$.c
    if [ -f conftest$$.o ]; then rm -f conftest$$.o; word=undef; else word=define; fi
    echo "#$word $name"
done
exit 0
"""
# as in NVIDIA's own: what includes the kernel's name does not all use it
NAMED = "#include <generated/utsrelease.h>\n"
ANSWERED = '#include "conftest/functions.h"\n#ifndef has_get_user_pages\n#error no\n#endif\n'
USED = UVM + "MODULE_INFO(made_for, UTS_RELEASE);\n"
# no file that it reads says so, only its command: this object is never kept
FLAGGED = NAMED + "const char nv_flagged[] = MADE_FOR;\n"
SOURCES = {
    "Makefile": MAKEFILE,
    "Kbuild": KBUILD,
    "conftest.sh": CONFTEST,
    "common/nv.h": "#define NV_ANSWER 42\n",
    "nvidia/nv.c": NAMED + ANSWERED + NV,
    "nvidia-uvm/uvm.c": NAMED + USED,
    "nvidia-uvm/flagged.c": FLAGGED,
}
EVERYTHING = {"nv.o", "uvm.o", "flagged.o"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    folder: Path
    asked: BuildRequest

    @property
    def compile_cache(self) -> Path:
        return self.folder / "node/var/lib/driverforge/compile"

    def build(self, number: int = 0, **changes: bool) -> tuple[ModuleSet, str]:
        """What is published, and make's log. The finished modules of earlier builds are not there."""
        shutil.rmtree(self.folder / "node/var/lib/driverforge/modules", ignore_errors=True)
        host = replace(real_host(), node=RootedFiles(str(self.folder / "node")))
        places = {name: str(self.folder / f"{name}-{number}") for name in ("output", "work", "logs")}
        (built,) = build(host, replace(self.asked, **places, **changes))
        (log,) = Path(places["logs"]).iterdir()
        return ModuleSet.from_json(Path(built.path, "module-set.json").read_text()), log.read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildRequest, ModuleSet, str]:
    """A build with an empty cache, which the tests begin with."""
    try:
        kernel = kernels.newest("6.1")
    except Unavailable as error:
        pytest.skip(f"no kernel to build for: {error.brief}")
    folder = tmp_path_factory.mktemp("first")
    bench = Bench(folder=folder, asked=request(folder, kernel.release, SOURCES))
    (folder / "node").mkdir()
    return folder / "node", bench.asked, *bench.build()


@pytest.fixture
def bench(made: tuple[Path, BuildRequest, ModuleSet, str], tmp_path: Path) -> Bench:
    shutil.copytree(made[0], tmp_path / "node")
    return Bench(folder=tmp_path, asked=made[1])


def compiled(log: str) -> set[str]:
    return {
        line.rpartition("/")[2]
        for line in log.splitlines()
        if line.strip().startswith("CC ") and not line.endswith(".mod.o")
    }


def test_an_empty_cache_compiles_everything(made: tuple[Path, BuildRequest, ModuleSet, str]) -> None:
    assert compiled(made[3]) == EVERYTHING


def test_a_second_build_compiles_what_it_may_not_keep_and_makes_the_same_modules(
    bench: Bench, made: tuple[Path, BuildRequest, ModuleSet, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    modules, log = bench.build()
    assert compiled(log) == {"flagged.o"}
    assert modules == made[2]
    (line,) = (each for each in caplog.records if "answered the probes" in each.message)
    assert getattr(line, "fields", {}) == {
        "asked_of_the_compiler": 0,
        "from_earlier_builds": 4,
        "objects_from_earlier_builds": 2,
    }


@pytest.mark.full(reason="compiles once more")
def test_the_record_of_answers_is_the_same_whoever_asked(bench: Bench) -> None:
    # a probe of a function that does not compile has found it
    for number, plain in enumerate((False, True), start=1):
        bench.build(number, plain=plain)
        (record,) = (bench.folder / f"output-{number}").rglob("conftest.txt")
        assert record.read_text() == "#define has_get_user_pages\n#define has_nonsense\n"


def test_a_changed_source_is_compiled_and_the_others_are_not(bench: Bench) -> None:
    source = bench.folder / "changed"
    shutil.copytree(bench.asked.image.sources["open"], source)
    (source / "nvidia-uvm/uvm.c").write_text(NAMED + USED + "\n")
    image = replace(bench.asked.image, sources={"open": str(source)})
    _, log = Bench(folder=bench.folder, asked=replace(bench.asked, image=image)).build()
    assert compiled(log) == {"uvm.o", "flagged.o"}


def test_for_a_kernel_of_the_class_what_uses_its_name_is_compiled_and_nothing_else(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    folder = bench.folder / "rebuilt"
    folder.mkdir()
    release, _ = kernels.rebuilt(kernels.newest("6.1"), folder)
    asked = replace(bench.asked, kernel=KernelRelease.parse(release), headers=str(folder))
    other = Bench(folder=bench.folder, asked=asked)
    modules, log = other.build()
    assert compiled(log) == {"uvm.o", "flagged.o"}
    (line,) = (each for each in caplog.records if "answered the probes" in each.message)
    assert getattr(line, "fields", {})["asked_of_the_compiler"] == 0
    plain, _ = other.build(1, plain=True)
    assert modules == plain
    assert modules.modules.keys() == {"nvidia.ko", "nvidia-uvm.ko"}


@pytest.mark.parametrize(
    "damage", ["objects", pytest.param("answers", marks=pytest.mark.full(reason="compiles once more"))]
)
def test_a_damaged_cache_costs_time_alone(
    bench: Bench, made: tuple[Path, BuildRequest, ModuleSet, str], damage: str
) -> None:
    for path in (bench.compile_cache / damage).iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    modules, log = bench.build()
    assert compiled(log) == EVERYTHING
    assert modules == made[2]


def test_a_cache_that_others_may_write_to_is_not_used(bench: Bench) -> None:
    bench.compile_cache.chmod(0o777)
    assert compiled(bench.build()[1]) == EVERYTHING


@pytest.mark.full(reason="compiles once more")
def test_the_plain_way_uses_and_keeps_nothing_and_makes_the_same_modules(
    bench: Bench, made: tuple[Path, BuildRequest, ModuleSet, str]
) -> None:
    shutil.rmtree(bench.compile_cache)
    modules, log = bench.build(plain=True)
    assert compiled(log) == EVERYTHING
    assert modules == made[2]
    assert not bench.compile_cache.exists()


@pytest.mark.full(reason="compiles once more")
def test_a_make_that_probes_again_is_not_believed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    source = bench.folder / "changed"
    shutil.copytree(bench.asked.image.sources["open"], source)
    again = KBUILD.replace(
        "functions.h: $(obj)/conftest/headers.h", "functions.h: $(obj)/conftest/headers.h FORCE"
    )
    (source / "Kbuild").write_text(again)
    image = replace(bench.asked.image, sources={"open": str(source)})
    _, log = Bench(folder=bench.folder, asked=replace(bench.asked, image=image)).build()
    assert compiled(log) == EVERYTHING
    assert "make probed again" in caplog.text
