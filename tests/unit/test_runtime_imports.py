"""containerd's `imports`: Go's patterns, where relative ones start, and in which order files count.

What a pattern matches was compared with Go's filepath.Match for 60,000 drawn pairs; the table keeps one of
each kind.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.backends import config_files, imports
from driverforge_toolkit.runtime.backends.imports import (
    brings_in,
    glob_base,
    matches,
    read_documents,
    whole_path,
)
from support.fakes.fakehost import fake_node
from support.fakes.runtimemodel import as_files, daemon

FOLDER = "/etc/containerd"
ROOT = f"{FOLDER}/config.toml"


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*.toml", "a.toml", True),
        ("*.toml", ".a.toml", True),  # Go's Glob has no hidden files
        ("*.toml", "a.tomlx", False),
        ("a*c*e", "abcde", True),
        ("?.toml", "\u00e9.toml", True),
        ("?.toml", ".toml", False),
        ("[0-9]?-*.toml", "99-nvidia.toml", True),
        ("[0-9]?-*.toml", "x9-nvidia.toml", False),
        ("[^0-9]*", "a9", True),
        ("[^0-9]*", "9a", False),
        ("[!a]*", "!x", True),  # fnmatch's negation is a character of the class
        ("[!a]*", "bx", False),
        ("[\\]a]*", "]", True),
        ("[z-a]*", "m", False),
        ("[^z-a]*", "m", True),
        ("\\**", "*x", True),
        ("\\**", "ax", False),
        ("a+(b).*", "a+(b).toml", True),
        ("*", "a\nb", True),
    ],
)
def test_a_pattern_matches_as_gos_does(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@pytest.mark.parametrize("pattern", ["*[", "*[a", "*[a-", "*[]a]", "*[-a]", "*[a-]", "*[^]", "*\\"])
def test_what_go_takes_for_no_pattern_is_told(pattern: str) -> None:
    with pytest.raises(InputError, match="is not a pattern"):
        matches(pattern, "x")


@pytest.mark.parametrize(
    ("item", "whole"),
    [
        ("conf.d/*.toml", f"{FOLDER}/conf.d/*.toml"),
        ("./x.toml", f"{FOLDER}/x.toml"),
        ("../a/../b/*.toml", "/etc/b/*.toml"),
        ("/a//b/./c/../d", "/a/b/d"),
        ("//a/b", "/a/b"),
        ("/../x", "/x"),
    ],
)
def test_an_item_is_a_path_beside_its_file_cleaned_as_go_does(item: str, whole: str) -> None:
    assert whole_path(item, ROOT) == whole


@pytest.mark.parametrize(
    ("version", "base"),
    [
        ((), ""),
        ((1, 6, 20), "/srv"),
        ((1, 6, 28), "/srv"),
        ((1, 6, 30), ""),
        ((1, 7, 0), "/srv"),
        ((1, 7, 15), "/srv"),
        ((1, 7, 16), ""),
        ((2, 0, 0), ""),
    ],
)
def test_older_daemons_start_relative_patterns_at_their_working_folder(
    version: tuple[int, ...], base: str
) -> None:
    assert glob_base(replace(daemon(version=version), folder="/srv")) == base
    assert whole_path("conf.d/*.toml", ROOT, base) == f"{base or FOLDER}/conf.d/*.toml"
    assert whole_path("x.toml", ROOT, base) == f"{FOLDER}/x.toml", (
        "a plain path is beside its file with all of them"
    )


@pytest.mark.parametrize(
    ("item", "path", "expected"),
    [
        ("/e/*.toml", "/e/a.toml", True),
        ("/e/*.toml", "/e/f/a.toml", False),  # a star does not cross a slash
        ("/*/a.toml", "/e/a.toml", True),
        ("/e/[a].toml", "/e/a.toml", False),  # without a star it is one path
        ("/e/[a].toml", "/e/[a].toml", True),
        ("/e/?.toml", "/e/a.toml", False),
    ],
)
def test_which_file_an_item_brings_in(item: str, path: str, expected: bool) -> None:
    assert brings_in(item, path, ROOT) is expected


def test_files_are_read_breadth_first_each_once_and_folder_by_folder() -> None:
    files: dict[str, bytes | None] = {
        "/r": b'imports = ["/a*/*.toml", "/z"]\n',
        "/a-b/1.toml": b'imports = ["/deep", "/r"]\n',
        "/a/2.toml": b"",
        "/a/1.toml": None,
        "/z": b'imports = ["/a/2.toml"]\n',
        "/deep": b"",
        "/other": b"",
    }
    found = read_documents("/r", as_files(files))
    assert list(found) == [
        "/r",
        "/a/1.toml",
        "/a/2.toml",
        "/a-b/1.toml",
        "/z",
        "/deep",
    ]


def test_the_nodes_files_are_found_as_they_would_be(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False).host.node
    node.make_dirs(f"{FOLDER}/conf.d/folder.toml")
    for name in ("a.toml", "gone.toml", "x.txt"):
        node.write_atomic(f"{FOLDER}/conf.d/{name}", b"")
    files = {ROOT: b'imports = ["conf.d/*.toml"]\n', f"{FOLDER}/conf.d/gone.toml": None}
    files[f"{FOLDER}/conf.d/new.toml"] = b""
    assert imports.imported_files(node, daemon(), ROOT, as_files(files)) == [
        f"{FOLDER}/conf.d/{name}" for name in ("a.toml", "new.toml")
    ]
    assert imports.imported_files(node, daemon(), ROOT, as_files(files), every=True) == [
        f"{FOLDER}/conf.d/{name}" for name in ("a.toml", "folder.toml", "new.toml")
    ]


@pytest.mark.parametrize("kind", ["a folder", "a link to nothing"])
def test_what_keeps_containerd_from_starting_is_told_before_anything_is_written(
    tmp_path: Path, kind: str
) -> None:
    made = fake_node(tmp_path, gpu=False)
    made.host.node.make_dirs(f"{FOLDER}/conf.d")
    made.host.node.write_atomic(ROOT, b'imports = ["conf.d/*.toml"]\n')
    if kind == "a folder":
        made.host.node.make_dirs(f"{FOLDER}/conf.d/x.toml")
    else:
        made.host.node.symlink("/nowhere", f"{FOLDER}/conf.d/x.toml")
    made.host.node.write_atomic(f"{FOLDER}/conf.d/y.toml", b"")
    where = replace(daemon(), config=ROOT)
    with pytest.raises(InputError, match=rf"conf\.d/x\.toml is {kind}"):
        config_files.read_files(made.host, where, to_write=True)
    found = config_files.read_files(made.host, where)
    assert f"{FOLDER}/conf.d/x.toml" not in found
    assert f"{FOLDER}/conf.d/y.toml" in found
