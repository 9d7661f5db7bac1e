"""Where our drop-in for containerd goes: beside files that nobody imports, and after those that would win."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tomllib

from driverforge_core.errors import Unsupported
from driverforge_toolkit.runtime.backends import containerd, crio, docker
from driverforge_toolkit.runtime.model import NodePath, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from driverforge_toolkit.runtime.transaction.consequences import check_effective
from support.fakes.runtimemodel import CONTAINERD, Files, daemon, effective

patched, placed, stripped = CONTAINERD.patched, CONTAINERD.placed, CONTAINERD.stripped
HANDLERS = nvidia_handlers("/t")
WANTED = WantedHandlers(handlers=HANDLERS)
OLD, NEW = daemon(version=(1, 6, 20)), daemon(version=(2, 1, 9))
ROOT, DROP_IN, FOLDER = OLD.config, OLD.drop_in, "/etc/containerd/conf.d"
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'
SITE = f'version = 2\n[{CRI2}.registry]\nconfig_path = "/etc/containerd/certs.d"\n'.encode()


def imports(data: bytes | None) -> object:
    return tomllib.loads((data or b"").decode()).get("imports")


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ((), f"{FOLDER}/*.toml"),
        ((f"{FOLDER}/README",), f"{FOLDER}/*.toml"),  # the glob does not bring that in
        ((f"{FOLDER}/old.toml",), DROP_IN),
        ((f"{FOLDER}/.hidden.toml",), DROP_IN),  # Go's Glob has no hidden files
    ],
)
def test_a_neighbour_that_nobody_imports_stays_out(beside: tuple[str, ...], expected: str) -> None:
    where = replace(NEW, beside=tuple(map(NodePath, beside)))
    files: Files = {ROOT: b"version = 2\n", DROP_IN: None}
    assert imports(patched(where, files, effective(where, files), WANTED)[ROOT]) == [expected]


def test_a_strip_takes_our_name_out_of_the_imports_too() -> None:
    files: Files = {
        ROOT: f'version = 2\nimports = ["/x.toml", "{DROP_IN}"]\n'.encode(),
        DROP_IN: f"version = 2\n[{CRI2}.containerd.runtimes.nvidia]\n".encode(),
    }
    assert imports(stripped(OLD, files, ("nvidia",))[ROOT]) == ["/x.toml"]


@pytest.mark.parametrize(
    ("root", "later", "name"),
    [
        (f'imports = ["{FOLDER}/*.toml"]', f"{FOLDER}/99-z.toml", "zz-nvidia.toml"),
        (f'imports = ["{FOLDER}/*.toml"]', f"{FOLDER}/zz-site.toml", "zzzz-nvidia.toml"),
        (f'imports = ["{FOLDER}/*.toml"]', f"{FOLDER}/zzzz.toml", "~nvidia.toml"),
        (f'imports = ["{FOLDER}/*.toml", "/site.toml"]', "/site.toml", "99-nvidia.last"),
    ],
)
def test_a_drop_in_is_read_after_the_sections_that_would_replace_it(root: str, later: str, name: str) -> None:
    """Before 2.1 the section of the last file counts alone: ours has all that it says."""
    files: Files = {ROOT: f"version = 2\n{root}\n".encode(), DROP_IN: None, later: SITE}
    where = placed(OLD, files)
    assert where.drop_in == f"{FOLDER}/{name}"
    before = effective(where, files)
    written = patched(where, files, before, WANTED)
    after = effective(where, {**files, **written})
    check_effective(containerd, where, (before, after), WANTED)
    assert written.keys() == {where.drop_in, ROOT}
    assert placed(NEW, files) == NEW, "2.1 merges key by key"


def test_a_name_that_somebody_has_is_not_taken() -> None:
    files: Files = {
        ROOT: f'version = 2\nimports = ["{FOLDER}/[0-9]*.toml", "/site.toml"]\n'.encode(),
        DROP_IN: None,
        "/site.toml": SITE,
    }
    assert placed(OLD, files).drop_in == f"{FOLDER}/zz-nvidia.toml"
    taken = replace(OLD, beside=(NodePath(f"{FOLDER}/zz-nvidia.toml"),))
    assert placed(taken, files).drop_in == f"{FOLDER}/zzzz-nvidia.toml"


def test_one_without_a_section_replaces_nothing() -> None:
    files: Files = {
        ROOT: f'version = 2\nimports = ["{FOLDER}/*.toml"]\n'.encode(),
        DROP_IN: None,
        f"{FOLDER}/zz.toml": b"version = 2\noom_score = 1\n",
    }
    assert placed(OLD, files) == OLD


def test_one_that_an_imported_file_imports_is_always_read_last() -> None:
    files: Files = {
        ROOT: b'version = 2\nimports = ["/a.toml"]\n',
        DROP_IN: None,
        "/a.toml": b'version = 2\nimports = ["/deep.toml"]\n',
        "/deep.toml": SITE,
    }
    where = placed(OLD, files)
    assert where == OLD
    with pytest.raises(Unsupported, match=r"/deep\.toml is read after") as caught:
        patched(where, files, effective(where, files), WANTED)
    assert "own `imports`" in caught.value.resolution


def test_the_others_have_no_places_to_choose_from() -> None:
    for backend, kind in ((crio, "crio"), (docker, "docker")):
        where = daemon(kind)  # type: ignore[arg-type]
        assert backend.placed(where, {}) == where
