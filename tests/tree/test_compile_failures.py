"""Probes on a machine that is failing: no answer, and never a wrong one. Real make, shell and compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from driverforge_core.errors import DriverforgeError
from driverforge_driver.compile import conftest
from driverforge_driver.compile.conftest import Script
from driverforge_driver.compile.memory import Digests, Memory, Place
from driverforge_driver.compile.probes import Flags, Group, Probe, Question, grouped, makefile
from driverforge_driver.compile.shortcuts import Prepared, written_anew
from driverforge_host.adapters.real import real_host
from support.process import missing, run

pytestmark = pytest.mark.skipif(bool(missing("make", "gcc")), reason="needs make and gcc")

# As NVIDIA's: a program on standard input, or in a file, and silence about all that goes wrong.
CONFTEST = """CC="$1"
verb=$5
CFLAGS=$6
shift 6
for name in "$@"; do
    if [ "$verb" = test_kernel_header ]; then
        if echo "#include <$name>" | $CC -E -M $CFLAGS - >/dev/null 2>&1; then echo "#define $name"; fi
        continue
    fi
    echo "int $name(void) { return 0; }" >conftest$$.c
    $CC $CFLAGS -c conftest$$.c >/dev/null 2>&1
    if [ -f conftest$$.o ]; then echo "#define $name"; else echo "#undef $name"; fi
    rm -f conftest$$.c conftest$$.o
done
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that come before the system's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def answer(folder: Path, *tests: str, kept: str = "") -> conftest.Outcome:
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "conftest.sh").write_text(CONFTEST)
    script = Script(
        path=str(work / "conftest.sh"),
        compiler="gcc",
        arch="x86_64",
        source="/s",
        output="/o",
        flags=Flags(words=("-O2",)),
        headers=("stddef.h",),
        tests={"functions": tests or ("one", "two")},
    )
    host = real_host()
    place = Place(folders={str(work): "@WORK@"}, context="c" * 64)
    memory = Memory(host.files, kept, place, Digests(files=host.files))
    outcome = conftest.answer(host, script, memory, place, work=str(work), jobs=1)
    memory.keep()
    return outcome


def test_a_machine_that_works_answers(tmp_path: Path) -> None:
    assert answer(tmp_path).headers == {
        "headers": "#define stddef.h\n",
        "functions": "#define one\n#define two\n",
    }


def test_a_probe_that_uses_the_kernels_name_is_asked_for_each_kernel(tmp_path: Path) -> None:
    found = [answer(tmp_path / each, "one", "UTS_RELEASE", kept=str(tmp_path / "kept")) for each in "ab"]
    assert found[0].headers == found[1].headers
    # one of them is the presence of a header
    assert [(each.compiled, each.remembered) for each in found] == [(3, 0), (1, 2)]


@pytest.mark.parametrize("program", ["sha256sum", "cat", "mv", "tail"])
def test_a_program_that_is_killed_is_no_answer(tmp_path: Path, programs: Path, program: str) -> None:
    """The memory of a pod, or its number of processes, may be at an end for a moment."""
    (programs / program).write_text("#!/bin/sh\nkill -9 $$\n")
    (programs / program).chmod(0o755)
    with pytest.raises(DriverforgeError):
        answer(tmp_path)


def test_a_compiler_without_an_answer_is_quoted(tmp_path: Path, programs: Path) -> None:
    """`-H` ends with a list of all headers that have no guard."""
    said = "gcc: fatal error: Killed signal terminated program cc1"
    guards = "Multiple include guards may be useful for:\n" + "/k/include/a.h\n" * 20
    (programs / "said").write_text(f"{said}\n{guards}")
    (programs / "gcc").write_text(f"#!/bin/sh\ncat {programs}/said >&2\nexit 1\n")
    (programs / "gcc").chmod(0o755)
    with pytest.raises(DriverforgeError, match="no answer") as caught:
        answer(tmp_path)
    assert caught.value.details == ("status 1", said)


def test_what_make_wrote_anew_is_named(tmp_path: Path) -> None:
    (tmp_path / "conftest").mkdir()
    given = {"functions": "#define A\n// 6.1\n", "types": "#undef B\n", "headers": "#define C\n"}
    (tmp_path / "conftest/functions.h").write_text("// 6.1\n")
    (tmp_path / "conftest/headers.h").write_text("#define C\n")
    host = real_host()
    place = Place(folders={}, context="c" * 64)
    memory = Memory(host.files, "", place, Digests(files=host.files))
    prepared = Prepared(arguments=(), headers=given, memory=memory, objects=None)
    assert written_anew(host, prepared, str(tmp_path)) == (
        "functions.h has '// 6.1' for '#define A'; types.h has None for '#undef B'"
    )
    for name, text in given.items():
        (tmp_path / f"conftest/{name}.h").write_text(text)
    assert written_anew(host, prepared, str(tmp_path)) == ""


def test_a_text_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    probe = Probe(question=Question.COMPILE, text="int x;\n")
    (tmp_path / "probes.mk").write_text(makefile("gcc", [Group(probes=(probe,))]))
    (tmp_path / "driverforge-all.flags").write_text("-O2\n")
    ran = subprocess.run(
        ["make", "-f", "probes.mk"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode != 0, "an empty text compiles"


def test_whether_a_header_is_absent_is_asked_where_it_is_not_present(tmp_path: Path) -> None:
    """As in conftest.sh, whose questions are both there before one is answered."""
    asked = [
        Probe(question=question, text=f"#include <{name}>\n")
        for name in ("there.h", "absent.h")
        for question in (Question.ABSENT, Question.PRESENT)
    ]
    (tmp_path / "there.h").touch()
    (tmp_path / "driverforge-all.flags").write_text("-I.\n")
    for probe in asked:
        path = tmp_path / f"driverforge-{probe.key}.{probe.question.value}"
        path.write_text(f"{probe.question.value}\n{probe.text}")
    (tmp_path / "probes.mk").write_text(makefile("gcc", grouped(asked, ())))
    run("make", "-s", "-f", "probes.mk", cwd=tmp_path)
    statuses = [tmp_path / f"driverforge-{probe.key}.status" for probe in asked]
    assert [path.read_text().strip() if path.exists() else "" for path in statuses] == ["", "0", "0", "1"]
