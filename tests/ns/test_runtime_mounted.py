"""A configuration file that is mounted by itself, as in the nodes of kind and k3d: on a real mount."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest

import driverctl
from driverforge_host.adapters.real import real_host
from driverforge_host.ports import Metadata
from driverforge_toolkit.runtime.find.instance import process_instance
from driverforge_toolkit.runtime.journal import JournalFile
from driverforge_toolkit.runtime.model import NO_PROCESS
from driverforge_toolkit.runtime.transaction import restore_script
from driverforge_toolkit.runtime.transaction.restore_script import RestoreOrder
from support.process import run

NEEDS = ["unshare", "--user", "--map-root-user", "--mount"]
BOUND = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


@cache
def why_not() -> str:
    """Why namespaces cannot be had here; '' when they can."""
    try:
        tried = subprocess.run([*NEEDS, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unshare is not installed"
    return "" if tried.returncode == 0 else f"no user namespaces here: {tried.stderr.strip()}"


pytestmark = pytest.mark.skipif(why_not() != "", reason=why_not() or "-")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """The file that is mounted at `config`."""
    (tmp_path / "config.toml").touch()
    (tmp_path / "outside.toml").write_bytes(b"ours, and longer\n")
    return tmp_path / "outside.toml"


def with_mount(outside: Path, *words: str | Path) -> None:
    packages = {"PYTHONPATH": str(Path(driverctl.__file__).parents[1])}
    run(*NEEDS, "sh", "-ec", BOUND, "sh", outside, outside.parent / "config.toml", *words, env=packages)


def test_we_write_it_in_place(outside: Path) -> None:
    code = f"""
        from driverforge_host.adapters.files import RootedFiles
        from driverforge_toolkit.runtime.backends import config_files
        path = {str(outside.parent / "config.toml")!r}
        before = b"ours, and longer\\n"
        files = RootedFiles()
        assert config_files.replaced(files, path, before=before, after=b"short\\n", metadata=None)
        assert not config_files.replaced(files, path, before=before, after=b"other\\n", metadata=None)
        assert config_files.replaced(files, path + ".new", before=None, after=b"new\\n", metadata=None)
    """
    inode = outside.stat().st_ino
    with_mount(outside, sys.executable, "-c", textwrap.dedent(code))
    assert (outside.read_bytes(), outside.stat().st_ino) == (b"short\n", inode)
    assert (outside.parent / "config.toml.new").read_bytes() == b"new\n"


def test_the_nodes_own_restore_writes_it_in_place(outside: Path, tmp_path: Path) -> None:
    here = tmp_path / "restore"
    here.mkdir()
    config = JournalFile(
        path=str(tmp_path / "config.toml"),
        original=b"before\n",
        written=b"ours, and longer\n",
        before=b"before\n",
        metadata=Metadata(mode=0o600, user=0, group=0),
    )
    order = RestoreOrder(files=(config,), folders=(), daemon=NO_PROCESS, restart="true", unit="")
    text = restore_script.script(real_host(), str(here), order)
    mine = process_instance(real_host(), "self")
    (here / "old.0").write_bytes(config.before or b"")
    (here / "new.0").write_bytes(config.written or b"")
    (here / "armed").touch()
    script = here / restore_script.SCRIPT
    script.write_text(text.replace(f"alive {mine.pid} {mine.start} ", "alive 0 0 "))
    with_mount(outside, "sh", script, "once")
    assert outside.read_bytes() == b"before\n"
    assert "in its place" in (here / "log").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "outside.toml", "restore"]
