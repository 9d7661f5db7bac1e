"""What is read from NVIDIA's probes and from the compiler's words about them."""

from __future__ import annotations

import pytest

from driverforge_driver.compile.probes import (
    Flags,
    Probe,
    Question,
    beginnings,
    effective,
    grouped,
    headers_read,
    makefile,
    response_file,
    verdict,
)

PREAMBLE = """#include "conftest/headers.h"
    #if defined(A) && \\
        defined(B)
    #define C D
    #endif
"""


def compile_probe(text: str) -> Probe:
    return Probe(question=Question.COMPILE, text=text)


def test_directives_end_at_the_first_line_of_c() -> None:
    text = f"{PREAMBLE}\n    #include <linux/mm.h>\n    int f(void) {{ return g(); }}\n"
    directives, lines = beginnings(text)[-1]
    assert directives.endswith("#endif\n#include <linux/mm.h>")
    assert lines == 7


def test_a_conditional_around_c_is_not_cut_in_two() -> None:
    text = "#include <a.h>\n#if defined(A)\n#include <b.h>\nint x;\n#endif\n"
    assert beginnings(text) == (("#include <a.h>", 1),)


@pytest.mark.parametrize("comment", ["#define A /* one", "// #include <a.h>"])
def test_nothing_is_taken_from_a_text_with_comments(comment: str) -> None:
    assert beginnings(f"{comment}\n#include <b.h>\n*/ int x;\n") == ()


def test_guards_count_by_what_they_include() -> None:
    text = "#include <a.h>\n#if defined(NV_DRM_DRMP_H_PRESENT)\n#include <drm/drmP.h>\n#endif\n#include <b.h>"
    assert effective(text, ()) == "#include <a.h>\n#include <b.h>"
    assert "#include <drm/drmP.h>" in effective(text, {"NV_DRM_DRMP_H_PRESENT"})


def test_each_probe_of_a_group_keeps_its_own_text() -> None:
    """Empty lines do not count as a difference of directives, but they are lines."""
    probes = [compile_probe(f"#include <a.h>\n{chr(10) * number}int f{number};\n") for number in range(5)]
    (group,) = grouped(probes, ())
    made = makefile("gcc", [group])
    for number, probe in enumerate(probes):
        assert f"@tail -n +{number + 3} driverforge-{probe.key}.c >" in made


def test_a_probe_that_includes_more_uses_the_precompiled_header_of_its_beginning() -> None:
    alike = [compile_probe(f"#include <a.h>\nint f{number};\n") for number in range(4)]
    more = compile_probe("#include <a.h>\n#include <b.h>\nint g;\n")
    other = compile_probe("#include <b.h>\n#include <a.h>\nint g;\n")
    found = grouped([more, other, *alike], ())
    assert [(set(group.probes), group.lines) for group in found] == [
        ({more, *alike}, (1, 1, 1, 1, 1)),
        ({other}, ()),
    ]
    made = makefile("gcc", found)
    assert f"@tail -n +3 driverforge-{more.key}.c >" in made
    assert f"@tail -n +2 driverforge-{other.key}.c >" in made


def test_few_probes_do_not_pay_for_a_precompiled_header() -> None:
    probes = [compile_probe(f"#include <a.h>\nint f{number};\n") for number in range(3)]
    assert "gch" not in makefile("gcc", grouped(probes, ()))


@pytest.mark.parametrize(
    ("status", "said", "answer"),
    [
        (0, '<command-line>: warning: missing terminating " character', True),
        (1, "<stdin>:3:5: error: too few arguments to function 'f'", False),
        (1, "include/a.h:3:10: fatal error: b.h: No such file or directory\ncompilation terminated.", False),
        (1, "/tmp/ccx.s: Assembler messages:\n/tmp/ccx.s:12: Error: no such instruction: `x'", False),
        (1, "gcc: fatal error: Killed signal terminated program cc1\ncompilation terminated.", None),
        (1, "<stdin>:1:1: error: x\ncc1: fatal error: error writing to /tmp/ccx.s: No space left", None),
        (1, "<stdin>:9:1: internal compiler error: Segmentation fault", None),
        (4, "<stdin>:1:1: error: x", None),
        (1, "", None),
        (127, "sh: 1: gcc-12: not found", None),
        (1, "collect2: ld returned 1 exit status", None),
    ],
)
def test_only_a_compiler_that_came_to_an_answer_is_believed(
    status: int, said: str, answer: bool | None
) -> None:
    assert verdict(status, said) is answer


def test_the_headers_that_were_read_are_all_lines_of_dots() -> None:
    said = "! driverforge-3.h.gch\n. /k/include/linux/mm.h\n.. conftest/headers.h\n. ./driverforge-3.h\n"
    said += "Multiple include guards may be useful for:\n/k/x.h\n"
    assert headers_read(said) == {"/k/include/linux/mm.h", "conftest/headers.h"}


def test_files_included_by_flags_are_told_apart() -> None:
    flags = Flags(words=("-O2", "-include", "a.h", "-DX", "-include", "b.h", "-Wall"))
    assert flags.included == ("a.h", "b.h")
    assert flags.rest == ("-O2", "-DX", "-Wall")


def test_the_compiler_reads_a_word_as_it_was_meant() -> None:
    assert (
        response_file(['-DN="#c"', '-DV=\\"5\\"', "-Ia b"]) == '-DN=\\"#c\\"\n-DV=\\\\\\"5\\\\\\"\n-Ia\\ b\n'
    )
