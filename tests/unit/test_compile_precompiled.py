"""Which sources share a precompiled header, and what of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from driverforge_driver.compile.beginnings import HEAVY, PAYS_FROM, Texts, guard, shared


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


def header(name: str, text: str) -> str:
    return f"#ifndef {name}_H\n#define {name}_H\n{text}\n#endif\n"


KERNELS = "\n".join(f"#include <linux/{number}.h>" for number in range(HEAVY))
HEAVY_ONE = {"uvm/heavy.h": header("HEAVY", f"int heavy;\n{KERNELS}")}


def begins(files: Mapping[str, str], source: str = "uvm/a.c") -> str:
    """The headers, and macros that are defined, of a source's beginning."""
    found = Texts((HEAVY_ONE | files).get).beginning(source)
    assert all(line == f'#include "{path.rpartition("/")[2]}"' for line, path in found if path)
    return " ".join(path or line.split()[1] for line, path in found)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('/* a */\n#define  X\n#include "a.h"\n#include "heavy.h" // no\n', "X uvm/a.h uvm/heavy.h"),
        ('#include "nv.h"\n#include "a.h"\n#include "heavy.h"\n', "common/inc/nv.h uvm/a.h uvm/heavy.h"),
        ('#include "heavy.h"\n#include "a.h"\n', "uvm/heavy.h"),
        ('#include "a.h"\n#include <linux/mm.h>\n#include "heavy.h"\n', ""),
        ('#if 1\n#include "heavy.h"\n#endif\n', ""),
        ('#include "open.h"\n#include "heavy.h"\n', ""),
        ('#include "gone.h"\n#include "heavy.h"\n', ""),
        ('#include "a.h"\n#include "nv.h"\n', ""),
    ],
)
def test_a_source_begins_with_guarded_headers_and_macros_up_to_a_heavy_one(source: str, said: str) -> None:
    files = {
        "uvm/a.c": source,
        "uvm/a.h": header("A", "int a;"),
        "common/inc/nv.h": header("NV", "int nv;"),
        "uvm/open.h": "int a;\n",
    }
    assert begins(files) == said


def test_a_header_gives_way_to_what_it_begins_with_itself() -> None:
    files = {
        "uvm/a.c": '#include "light.h"\n#include "hal.h"\n',
        "uvm/b.c": '#include "light.h"\n#include "types.h"\n#include "heavy.h"\n',
        "uvm/light.h": header("LIGHT", '#include "types.h"'),
        "uvm/hal.h": header("HAL", '#include "types.h"\n#include "common.h"\n#include <linux/mm.h>'),
        "uvm/common.h": header("COMMON", '#include "heavy.h"\nint common;'),
        "uvm/types.h": header("TYPES", "int types;"),
    }
    assert begins(files) == begins(files, "uvm/b.c") == "uvm/light.h uvm/types.h uvm/heavy.h"


@pytest.mark.parametrize(
    "between",
    ["#define TESTED 1", "#ifdef TESTED\n#endif", "#include <linux/mm.h>", "int hal;"],
)
def test_a_header_with_anything_before_does_not_give_way(between: str) -> None:
    files = {"uvm/a.c": '#include "hal.h"\n', "uvm/hal.h": header("HAL", f'{between}\n#include "heavy.h"')}
    assert begins(files) == "uvm/hal.h"


@pytest.mark.parametrize(
    "deep",
    ["#ifdef BIG_H\nint here;\n#endif", '#include "big.h"'],
    ids=["asks for its guard", "includes it again"],
)
@pytest.mark.parametrize("where", ["uvm/first.h", "uvm/way.h"])
def test_what_knows_the_header_that_it_is_included_by_does_not_stand_for_it(deep: str, where: str) -> None:
    files = {
        "uvm/a.c": '#include "big.h"\n',
        "uvm/big.h": header("BIG", '#include "first.h"\n#include "way.h"\nint big;'),
        "uvm/first.h": header("FIRST", "int first;"),
        "uvm/way.h": header("WAY", 'int way;\n#include "heavy.h"'),
    }
    assert begins(files) == "uvm/first.h uvm/way.h"
    files["uvm/deep.h"] = header("DEEP", f"int deep;\n{deep}")
    assert begins(files | {where: header("KNOWS", '#include "deep.h"\n#include "heavy.h"')}) == "uvm/big.h"


def test_a_name_that_is_another_file_for_the_source_does_not_stand_for_its_header() -> None:
    files = {
        "uvm/a.c": '#include "nv.h"\n',
        "uvm/same.h": header("SAME", "int ours;"),
        "common/inc/nv.h": header("NV", '#include "same.h"\n#include "big.h"'),
        "common/inc/same.h": header("THEIRS", "int theirs;"),
        "common/inc/big.h": header("BIG", KERNELS),
    }
    assert begins(files) == "common/inc/nv.h"


def test_a_header_is_heavy_by_all_of_the_kernels_headers_that_it_reaches() -> None:
    many = "\n".join(f"#include <linux/{number}.h>" for number in range(HEAVY - 1))
    files = {
        "uvm/a.c": '#include "big.h"\n',
        "uvm/big.h": header("BIG", 'int big;\n#include "way.h"\n#include <linux/1.h>\n#include "big.h"'),
        "uvm/way.h": header("WAY", f"int way;\n{many}"),
    }
    assert begins(files) == ""
    assert begins(files | {"uvm/way.h": header("WAY", f"{many}\n#include <linux/one.h>")}) == "uvm/big.h"


def test_enough_sources_of_a_folder_share_a_beginning() -> None:
    one, two = ((('#include "a.h"', "uvm/a.h"),), (('#include "b.h"', "uvm/b.h"),))
    enough = {f"uvm/{number}.c": one for number in range(PAYS_FROM)}
    few = {f"uvm/x{number}.c": two for number in range(PAYS_FROM - 1)}
    elsewhere = {"drm/1.c": two, **{f"uvm/y{number}.c": () for number in range(PAYS_FROM)}}
    assert shared(few | enough | elsewhere) == ((one, tuple(enough)),)
