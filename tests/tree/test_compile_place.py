"""What all answers of the compile cache depend on, and whose folder it is. Real files and programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_driver.compile import shortcuts
from driverforge_driver.compile.headers import KernelHeaders
from driverforge_driver.family.protocol import Compiler, HeaderTree
from driverforge_host.adapters.real import real_host
from support.process import missing

pytestmark = pytest.mark.skipif(bool(missing("gcc", "as", "ld", "find")), reason="needs gcc and binutils")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Headers of Ubuntu's shape: the flavour's folder links into the shared one. And a driver's sources."""

    root: Path

    def write(self, path: str, text: str = "") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    @property
    def context(self) -> str:
        output = str(self.root / "flavour")
        headers = KernelHeaders(
            tree=HeaderTree(root=str(self.root), source=output, output=output),
            compiler=Compiler(program="gcc", package="gcc", built_with=""),
            packages=(),
        )
        source, work = str(self.root / "nvidia"), str(self.root / "work")
        return shortcuts.place(real_host(), headers, source=source, work=work).context


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(root=tmp_path)
    made.write("shared/include/linux/mm.h")
    made.write("shared/scripts/Makefile.build", "objtool := --orc\n")
    made.write("flavour/scripts/gcc-plugins/latent_entropy.so", "1")
    made.write("nvidia/nv.c")
    (tmp_path / "flavour/include").symlink_to("../shared/include")
    (tmp_path / "flavour/scripts/Makefile.build").symlink_to("../../shared/scripts/Makefile.build")
    return made


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.write("shared/include/linux/fence.h"),
        lambda tree: tree.write("shared/scripts/Makefile.build", "objtool := --ibt\n"),
        lambda tree: tree.write("flavour/scripts/gcc-plugins/latent_entropy.so", "2"),
        lambda tree: tree.write("nvidia/nv.h"),
    ],
    ids=["a header behind a link", "what Kbuild does", "a plugin of the compiler", "a source"],
)
def test_a_change_of_what_no_answer_names_is_another_context(
    tree: Tree, change: Callable[[Tree], None]
) -> None:
    before = tree.context
    assert tree.context == before
    change(tree)
    assert tree.context != before


def test_an_assembler_of_the_same_version_is_another_one(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distributions mend their binutils and keep the version."""
    before = tree.context
    tree.write("bin/as", '#!/bin/sh\nexec /usr/bin/as "$@"\n')
    (tmp_path / "bin/as").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert tree.context != before


@pytest.mark.parametrize("whose", ["ours", "open to all", "a link", "somebody else's"])
def test_a_cache_is_used_where_nobody_else_could_write(
    tmp_path: Path, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = tmp_path / "kept"
    if whose == "a link":
        kept.symlink_to(tmp_path)
    elif whose != "ours":
        kept.mkdir()
        kept.chmod(0o777 if whose == "open to all" else 0o755)
    if whose == "somebody else's":
        if os.geteuid() != 0:
            pytest.skip("needs root to give a folder away")
        os.chown(kept, 1000, 1000)
    assert shortcuts.ours(real_host(), str(kept)) is (whose == "ours")
    assert ("the compile cache is not used" in caplog.text) is (whose != "ours")
