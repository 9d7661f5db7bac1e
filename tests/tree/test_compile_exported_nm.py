"""make's nm: what exports nothing is not listed, everything else as nm itself does."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_driver.compile.shortcuts import nm_stand_in
from driverforge_host.adapters.real import real_host
from support.process import missing, run

pytestmark = pytest.mark.skipif(bool(missing("gcc", "nm", "grep")), reason="needs gcc and binutils")

PLAIN = "int one(int a) { return a + 1; }\n"
# how kernels mark an exported symbol: a symbol in a section of its own, up to 6.4; a name for modpost, after
EXPORTED = {
    "6.1": """
int one(int a) { return a + 1; }
extern const char one_exported __asm__("__ksymtab_one");
const char one_exported __attribute__((section("___ksymtab_gpl+one"))) = 1;
""",
    "6.12": """
int one(int a) { return a + 1; }
asm(".section .export_symbol, \\"a\\"\\n__export_symbol_one:\\n .asciz \\"GPL\\"\\n .previous");
""",
}


@pytest.fixture
def lister(tmp_path: Path) -> str:
    return nm_stand_in(real_host(), work=str(tmp_path))


def compiled(folder: Path, text: str) -> str:
    source = folder / "one.c"
    source.write_text(text)
    run("gcc", "-c", "-o", str(folder / "one.o"), str(source))
    return str(folder / "one.o")


@pytest.mark.parametrize("series", EXPORTED)
def test_an_object_that_exports_is_listed_as_nm_lists_it(tmp_path: Path, lister: str, series: str) -> None:
    made = compiled(tmp_path, EXPORTED[series])
    listed = run(lister, made).stdout
    assert listed == run("nm", made).stdout
    assert {"6.1": "__ksymtab_one", "6.12": " __export_symbol_one"}[series] in listed


def test_one_that_exports_nothing_is_not_listed(tmp_path: Path, lister: str) -> None:
    made = compiled(tmp_path, PLAIN)
    assert " one\n" in run("nm", made).stdout
    assert run(lister, made).stdout == ""


def test_whoever_asks_otherwise_is_answered_by_nm(tmp_path: Path, lister: str) -> None:
    made = compiled(tmp_path, PLAIN)
    assert run(lister, "-P", made).stdout == run("nm", "-P", made).stdout != ""


def test_what_cannot_be_read_is_an_error_of_nms(tmp_path: Path, lister: str) -> None:
    told = run(lister, str(tmp_path / "none.o"), check=False)
    assert told.status != 0
    assert "none.o" in told.stderr
