"""Which sources share a precompiled header, and what of them."""

from __future__ import annotations

import pytest

from driverforge_node.driver.build.beginnings import HEAVY, PAYS_FROM, Texts, guard, shared


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("#ifndef A\n#define A\nint a;\n#endif\n", True),
        ("/* a */\n#if !defined(A)\n#define A 1\n#ifdef B\n#else\n#endif\n#endif /* A */\n", True),
        ("int a;\n", False),
        ("#ifndef A\n#define B\nint a;\n#endif\n", False),
        ("#ifndef A\n#define A\n#endif\nint a;\n", False),
        ("#ifndef A\n#define A\n#else\nint again;\n#endif\n", False),
        ("#ifndef A\n#define A\n#endif\n#ifdef B\n#endif\n", False),
        ("#ifndef A\n#define A\n#undef A\n#endif\n", False),
    ],
)
def test_a_header_is_guarded_where_reading_it_again_says_nothing(header: str, said: bool) -> None:
    assert guard(header) == ("A" if said else "")


def test_a_source_begins_with_guarded_headers_of_the_driver_and_plain_macros() -> None:
    files = {
        "uvm/a.c": '/* a */\n#define  X\n#include "a.h"\n#include "nv.h" // nv\n#include "open.h"\n',
        "uvm/b.c": '#include "a.h"\n#include <linux/mm.h>\n#include "nv.h"\n',
        "uvm/c.c": '#if 1\n#include "a.h"\n#endif\n',
        "uvm/a.h": "#ifndef A\n#define A\n#endif\n",
        "common/inc/nv.h": "#ifndef N\n#define N\n#endif\n",
        "uvm/open.h": "int a;\n",
    }
    texts = Texts(files.get)
    assert texts.beginning("uvm/a.c") == ("#define  X", '#include "a.h"', '#include "nv.h"')
    assert texts.beginning("uvm/b.c") == ('#include "a.h"',)
    assert texts.beginning("uvm/c.c") == ()


def header(name: str, text: str) -> str:
    return f"#ifndef {name}_H\n#define {name}_H\n{text}\n#endif\n"


def included(*names: str) -> tuple[str, ...]:
    return tuple(f'#include "{name}.h"' for name in names)


def test_a_header_comes_after_those_that_it_begins_with() -> None:
    files = {
        "uvm/a.c": '#include "hal.h"\n#include "api.h"\n',
        "uvm/hal.h": header("HAL", '#include "types.h"\n#include "common.h"\nint hal;\n#include "late.h"'),
        "uvm/api.h": header("API", '#include "types.h"\n#define API 1\n#include "late.h"'),
        "uvm/types.h": header("TYPES", '#include "nv.h"'),
        "uvm/common.h": header("COMMON", "#ifdef DEBUG\n#define DEBUGGED\n#endif\n#include <linux/mm.h>"),
        "uvm/late.h": header("LATE", "int late;"),
        "common/inc/nv.h": header("NV", "int nv;"),
    }
    assert Texts(files.get).beginning("uvm/a.c") == included("nv", "types", "common", "hal", "api")


@pytest.mark.parametrize(
    "deep",
    ["#ifdef BIG_H\nint here;\n#endif", '#include "big.h"'],
    ids=["asks for its guard", "includes it again"],
)
def test_what_knows_the_header_that_it_is_included_by_does_not_come_before_it(deep: str) -> None:
    files = {
        "uvm/a.c": '#include "big.h"\n',
        "uvm/big.h": header("BIG", '#include "first.h"\n#include "way.h"\n#include "last.h"'),
        "uvm/first.h": header("FIRST", "int first;"),
        "uvm/way.h": header("WAY", '#include "deep.h"'),
        "uvm/deep.h": header("DEEP", f"int deep;\n{deep}"),
        "uvm/last.h": header("LAST", "int last;"),
    }
    assert Texts(files.get).beginning("uvm/a.c") == included("first", "big")


def test_a_name_that_is_another_file_for_the_source_does_not_come_before() -> None:
    files = {
        "uvm/a.c": '#include "nv.h"\n',
        "uvm/same.h": header("SAME", "int ours;"),
        "common/inc/nv.h": header("NV", '#include "same.h"'),
        "common/inc/same.h": header("THEIRS", "int theirs;"),
    }
    assert Texts(files.get).beginning("uvm/a.c") == included("nv")


def test_a_header_is_heavy_by_the_kernels_headers_that_it_reaches() -> None:
    many = "\n".join(f"#include <linux/{number}.h>" for number in range(HEAVY - 1))
    files = {
        "uvm/big.h": header("BIG", '#include "way.h"\n#include <linux/one.h>\n#include "big.h"'),
        "uvm/way.h": header("WAY", f"int way;\n{many}"),
    }
    texts = Texts(files.get)
    assert texts.is_heavy('#include "big.h"', "uvm")
    assert not texts.is_heavy('#include "way.h"', "uvm")
    assert not texts.is_heavy('#include "gone.h"', "uvm")
    assert not texts.is_heavy("#define BIG 1", "uvm")


def test_sources_of_a_folder_share_what_all_of_them_begin_with() -> None:
    a, b, c = ('#include "a.h"', '#include "b.h"', '#include "c.h"')
    beginnings = {f"uvm/{number}.c": (a, b, *(c,) * (number % 2)) for number in range(PAYS_FROM)}
    others = {f"uvm/x{number}.c": (b,) for number in range(PAYS_FROM - 1)}
    light = {f"uvm/y{number}.c": (c, "#define b.h 1") for number in range(PAYS_FROM)}
    elsewhere = {"drm/1.c": (a, b), "uvm/nothing.c": (), "uvm/macro.c": ("#define X",)}
    found = shared(beginnings | others | light | elsewhere, lambda line, folder: line == b)
    assert found == (((a, b), tuple(beginnings)),)


def test_sources_share_by_what_comes_up_to_the_first_heavy_include() -> None:
    a, heavy, c = ('#include "a.h"', '#include "heavy.h"', '#include "c.h"')
    one = {f"uvm/{number}.c": (a, heavy, f"#define X {number}", c) for number in range(PAYS_FROM)}
    two = {f"uvm/x{number}.c": (c, heavy) for number in range(PAYS_FROM)}
    found = shared(one | two, lambda line, folder: line == heavy and folder == "uvm")
    assert found == (((a, heavy), tuple(one)), ((c, heavy), tuple(two)))
