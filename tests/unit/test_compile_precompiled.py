"""Which sources share a precompiled header, and what of them."""

from __future__ import annotations

import pytest

from driverforge_node.driver.build.precompiled import beginning, guarded, shared


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
    assert guarded(header) is said


def test_a_source_begins_with_guarded_headers_of_the_driver_and_plain_macros() -> None:
    files = {
        "uvm/a.c": '/* a */\n#define  X\n#include "a.h"\n#include "nv.h" // nv\n#include "open.h"\n',
        "uvm/b.c": '#include "a.h"\n#include <linux/mm.h>\n#include "nv.h"\n',
        "uvm/c.c": '#if 1\n#include "a.h"\n#endif\n',
        "uvm/a.h": "#ifndef A\n#define A\n#endif\n",
        "common/inc/nv.h": "#ifndef N\n#define N\n#endif\n",
        "uvm/open.h": "int a;\n",
    }
    assert beginning("uvm/a.c", files.get) == ("#define  X", '#include "a.h"', '#include "nv.h"')
    assert beginning("uvm/b.c", files.get) == ('#include "a.h"',)
    assert beginning("uvm/c.c", files.get) == ()


def test_sources_of_a_folder_share_what_all_of_them_begin_with() -> None:
    a, b, c = ('#include "a.h"', '#include "b.h"', '#include "c.h"')
    beginnings = {f"uvm/{number}.c": (a, b, *(c,) * (number % 2)) for number in range(4)}
    others = {f"uvm/x{number}.c": (b,) for number in range(3)}
    elsewhere = {"drm/1.c": (a, b), "uvm/nothing.c": (), "uvm/macro.c": ("#define X",)}
    assert shared(beginnings | others | elsewhere) == (((a, b), tuple(beginnings)),)
