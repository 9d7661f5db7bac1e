"""Objects by precompiled headers: the real compiler makes the bytes that it makes without."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from driverforge_driver.compile import space
from driverforge_driver.compile.beginnings import HEAVY
from driverforge_driver.compile.precompiled import stand_in
from driverforge_host.adapters.real import real_host
from support.process import missing, run

# as many names as a header has that reads half of the kernel's
MANY = "\n".join(f"#include <linux/{number}.h>" for number in range(HEAVY))
# gcc 12 orders what two() does otherwise where it does not know that the stack pointer has a name
BIG = f"""/* ours */
#ifndef BIG_H
#define BIG_H
#include "deep.h"
#if 0
{MANY}
#endif
struct waiter {{ long flags; void *task; long list[3]; }};
extern int ask(int, struct waiter *);
extern void tell(int, int *, struct waiter *);
#endif // BIG_H
"""
# another way to the same
OVER = """#ifndef OVER_H
#define OVER_H
#include "small.h"
#include "big.h"
#include "late.h"
static inline int over(int a) { return a + 1; }
#endif
"""
DEEP = """#ifndef DEEP_H
#define DEEP_H
register unsigned long current_stack_pointer asm("rsp");
static inline unsigned long here(void) { return current_stack_pointer; }
#define NAMED KBUILD_BASENAME
#endif
"""
SOURCE = """
#include "big.h"
int %s(int a, int b)
{
    int kind;
    struct waiter w;
    int said = ask(a, &w);
    w.flags = 1;
    kind = said;
    tell(b, &kind, &w);
    return kind + w.flags;
}
const char *name_of_%s = NAMED;
"""
NAMES = ("one", "two", "three", "four", "five")
FLAGS = ("-O2", "-mno-red-zone", "-fno-PIE", "-mcmodel=kernel", "-mpreferred-stack-boundary=3", "-mno-sse")
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or bool(missing("gcc", "make")),
    reason="needs make and gcc, for a register of x86-64",
)


def compiled(compiler: str, work: Path, name: str, folder: Path) -> tuple[bytes, list[str]]:
    """An object as Kbuild has it made, and the files it depends on, as they were read."""
    folder.mkdir(exist_ok=True)
    depends, out = folder / f".{name}.d", folder / f"{name}.o"
    run(
        *(compiler, f"-Wp,-MMD,{depends}", f"-I{work}/uvm", "-include", work / "first.h", *FLAGS),
        *(f'-DKBUILD_BASENAME="{name}"', "-c", "-o", out, f"{work}/uvm/{name}.c"),
    )
    words = depends.read_text().replace("\\", " ").split()
    return out.read_bytes(), [word for word in words if not word.endswith(":")]


def work_folder(work: Path, deep: str = DEEP) -> Path:
    (work / "uvm").mkdir(parents=True)
    (work / "first.h").write_text("#define FIRST 1\n")
    (work / "uvm/big.h").write_text(BIG)
    (work / "uvm/over.h").write_text(OVER)
    (work / "uvm/deep.h").write_text(f"#if FIRST\n{deep}#endif\n")
    for name in NAMES:
        (work / f"uvm/{name}.c").write_text(SOURCE % (name, name))
    return work


def test_objects_are_the_plain_ones_and_depend_on_the_same_files_in_order(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "driverforge-work")
    compiler = stand_in(real_host(), "gcc", work=str(work))
    assert compiler != "gcc"
    for name in NAMES:
        plain = compiled("gcc", work, name, tmp_path / "plain")
        assert compiled(compiler, work, name, tmp_path / "ours") == plain
        # a compiler that could not use it would have said so
        assert (work / f"uvm/driverforge-{name}.c.err").read_text() == ""
    assert (work / "uvm/driverforge-0.h.gch").exists()


def test_sources_that_reach_a_header_in_other_ways_share_it(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work")
    (work / "uvm/small.h").write_text('#ifndef SMALL_H\n#define SMALL_H\n#include "tiny.h"\n#endif\n')
    # named twice, since it is found beside the source and by -I
    (work / "uvm/late.h").write_text("#ifndef late\n#define late\n#include <small.h>\n#endif\n")
    (work / "uvm/tiny.h").write_text("#ifndef tiny\n#define tiny\n#endif\n")
    for number, name in enumerate(NAMES):
        ways = ("over.h", 'small.h"\n#include "over.h', 'small.h"\n#include "big.h')
        (work / f"uvm/{name}.c").write_text((SOURCE % (name, name)).replace("big.h", ways[number % 3]))
    compiler = stand_in(real_host(), "gcc", work=str(work))
    for name in NAMES:
        plain = compiled("gcc", work, name, tmp_path / "plain")
        assert plain[1].count(f"{work}/uvm/small.h") == 1 + plain[1].count(f"{work}/uvm/late.h")
        assert compiled(compiler, work, name, tmp_path / "ours") == plain
        assert (work / f"uvm/driverforge-{name}.c.err").read_text() == ""
    assert len(list(work.rglob("*.h.gch"))) == 1


def test_make_lets_the_others_wait_for_the_first_object_that_is_in_a_module(tmp_path: Path) -> None:
    sources, work = tmp_path / "sources", work_folder(tmp_path / "work")
    sources.mkdir()
    theirs = "obj-m := nvidia.o uvm.o\nnvidia-y := nv.o\nuvm-objs := uvm/two.o uvm/three.o uvm/five.o\n"
    (sources / "Kbuild").write_text(theirs)
    (work / "Kbuild").symlink_to(sources / "Kbuild")
    (work / "Makefile").write_text(
        "obj := /o\nall: /o/uvm/three.o /o/uvm/five.o /o/uvm/two.o\ninclude Kbuild\n"
        "%.o: ; @echo $(notdir $@ $|)\n"
    )
    stand_in(real_host(), "gcc", work=str(work))
    said = run("make", "-j1", "--no-builtin-rules", cwd=work).stdout.splitlines()
    assert said == ["two.o", "three.o two.o", "five.o two.o"]
    assert (sources / "Kbuild").read_text() == theirs


def test_without_the_register_named_again_the_compiler_orders_otherwise(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work")
    compiler = stand_in(real_host(), "gcc", work=str(work))
    compiled(compiler, work, "one", tmp_path / "ours")
    assert "rsp" in (work / "uvm/driverforge-0.registers").read_text()
    (work / "uvm/driverforge-0.registers").write_text("")
    assert compiled(compiler, work, "two", tmp_path / "ours") != compiled(
        "gcc", work, "two", tmp_path / "plain"
    )


def test_headers_that_name_no_register_get_none(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work", "#define NAMED KBUILD_BASENAME\n")
    compiler = stand_in(real_host(), "gcc", work=str(work))
    assert compiled(compiler, work, "two", tmp_path / "ours") == compiled(
        "gcc", work, "two", tmp_path / "plain"
    )
    assert (work / "uvm/driverforge-0.h.gch").exists()
    assert (work / "uvm/driverforge-0.registers").read_text() == ""


@pytest.mark.parametrize("line", ["static const char *here_in = KBUILD_BASENAME;", "#error no"])
def test_headers_that_need_the_sources_name_are_not_precompiled(tmp_path: Path, line: str) -> None:
    named = f"#ifdef KBUILD_BASENAME\n#define NAMED KBUILD_BASENAME\n#endif\n{line}\n"
    deep = (
        named
        if "error" not in line
        else f"#ifndef KBUILD_BASENAME\n{line}\n#endif\n{named.partition(line)[0]}"
    )
    work = work_folder(tmp_path / "work", deep)
    compiler = stand_in(real_host(), "gcc", work=str(work))
    for name in NAMES[:2]:
        plain = compiled("gcc", work, name, tmp_path / "plain")
        assert compiled(compiler, work, name, tmp_path / "ours") == plain
    assert not (work / "uvm/driverforge-0.h.gch").exists()


@pytest.mark.parametrize("line", ["#undef ASKED", "#undef ASKED\n#define ASKED 3"])
def test_headers_that_change_a_macro_of_their_source_are_not_precompiled(tmp_path: Path, line: str) -> None:
    work = work_folder(tmp_path / "work", f"{DEEP}{line}\n")
    for name in NAMES:
        text = (SOURCE % (name, name)).replace(
            "return kind", "#ifdef ASKED\nkind += ASKED;\n#endif\nreturn kind"
        )
        (work / f"uvm/{name}.c").write_text(f"#define ASKED 2\n{text}")
    compiler = stand_in(real_host(), "gcc", work=str(work))
    for name in NAMES[:2]:
        plain = compiled("gcc", work, name, tmp_path / "plain")
        assert compiled(compiler, work, name, tmp_path / "ours") == plain
    assert not (work / "uvm/driverforge-0.h.gch").exists()


def test_a_disk_with_room_for_a_plain_build_alone_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = work_folder(tmp_path / "work")
    monkeypatch.setattr(space, "PRECOMPILED", 1 << 60)
    assert stand_in(real_host(), "gcc", work=str(work)) == "gcc"


def test_a_damaged_precompiled_header_costs_time_alone(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work")
    compiler = stand_in(real_host(), "gcc", work=str(work))
    compiled(compiler, work, "one", tmp_path / "ours")
    (work / "uvm/driverforge-0.h.gch").write_bytes(b"gpch")
    assert compiled(compiler, work, "two", tmp_path / "ours") == compiled(
        "gcc", work, "two", tmp_path / "plain"
    )


def test_what_is_compiled_already_needs_none(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work")
    (work / "uvm/one.o").write_bytes(b"")
    text = Path(stand_in(real_host(), "gcc", work=str(work))).read_text()
    assert "df_group=" not in text
