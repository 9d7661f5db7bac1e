"""Undoing our change of a file that others may have changed since: what goes, what stays, what is told."""

from __future__ import annotations

import json

import pytest

from driverforge_toolkit.runtime.backends.threeway import all_of_them, runtime_of, undo
from support.fakes.runtimemodel import UndoneBytes, as_files

FILE = "/etc/docker/daemon.json"
TOML = "/etc/containerd/config.toml"


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def undo_bytes(
    path: str, *, original: bytes | None, written: bytes | None, current: bytes | None
) -> UndoneBytes:
    [file] = as_files({path: current}).values()
    undone = undo(file, all_of_them, original=original, written=written)
    return UndoneBytes(data=undone.file.data, kept=undone.kept)


def undo_json(*, original: bytes | None, written: object, current: bytes) -> UndoneBytes:
    return undo_bytes(FILE, original=original, written=text(written), current=current)


def test_a_key_that_we_never_touched_is_none_of_ours_when_others_change_it() -> None:
    undone = undo_json(
        original=text({"debug": False}),
        written={"debug": False, "cdi": True},
        current=text({"debug": True, "cdi": True}),
    )
    assert json.loads(undone.data or b"") == {"debug": True}
    assert undone.kept == ()


def test_a_key_of_ours_that_others_took_away_is_not_kept_and_does_not_come_back() -> None:
    undone = undo_json(
        original=text({"mode": "a"}), written={"mode": "b", "cdi": True}, current=text({"cdi": True})
    )
    assert json.loads(undone.data or b"") == {}
    assert undone.kept == ()


def test_a_list_that_others_changed_stays_whole_unless_its_items_are_independent() -> None:
    """The order of a runtime's arguments matters; the files that containerd imports are independent."""
    undone = undo_json(
        original=b"{}",
        written={"args": ["--ours"], "imports": ["/ours"]},
        current=text({"args": ["--ours", "--theirs"], "imports": ["/ours", "/theirs"]}),
    )
    assert json.loads(undone.data or b"") == {"args": ["--ours", "--theirs"], "imports": ["/theirs"]}
    assert undone.kept == (("args",),)


@pytest.mark.parametrize(
    ("original", "left"),
    [
        ({"imports": ["/gone-since"]}, {"imports": []}),
        ({}, {}),
    ],
)
def test_a_list_of_which_nothing_is_left_goes_unless_it_was_there_before(
    original: dict[str, object], left: dict[str, object]
) -> None:
    undone = undo_json(
        original=text(original),
        written={"imports": ["/gone-since", "/ours"]} if original else {"imports": ["/ours", "/ours-too"]},
        current=text({"imports": ["/ours"]}),
    )
    assert json.loads(undone.data or b"") == left


@pytest.mark.parametrize(("original", "stays"), [(None, False), (b"{}", True)])
def test_a_file_that_others_formatted_goes_only_if_we_made_it(original: bytes | None, stays: bool) -> None:
    undone = undo_json(original=original, written={"cdi": True}, current=b'{\n  "cdi": true\n}\n')
    assert (undone.data is not None) is stays
    assert json.loads(undone.data or b"{}") == {}


def test_a_file_of_ours_in_which_others_left_a_comment_stays() -> None:
    undone = undo_bytes(
        TOML,
        original=None,
        written=b"cdi = true\n",
        current=b"cdi = true\n\n# theirs\n",
    )
    assert undone.data == b"\n# theirs\n"


@pytest.mark.parametrize("current", [b'{"debug": true}\n', b'{"debug": false}\n', b""])
def test_what_others_wrote_where_we_removed_a_file_is_theirs(current: bytes) -> None:
    undone = undo_bytes(FILE, original=b'{"debug": false}\n', written=None, current=current)
    assert undone == UndoneBytes(data=current)


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (("runtimes", "nvidia", "path"), "nvidia"),
        (("runtimes", "nvidia"), "nvidia"),
        (("runtimes",), ""),
        (("default-runtime",), ""),
        (
            ("plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "nvidia", "options", "x"),
            "nvidia",
        ),
        (("plugins", "io.containerd.grpc.v1.cri", "containerd", "default_runtime_name"), ""),
        (("crio", "runtime", "runtimes", "nvidia", "runtime_path"), "nvidia"),
        (("crio", "runtime", "runtimes"), ""),
    ],
)
def test_a_key_below_the_table_of_runtimes_belongs_to_one(path: tuple[str, ...], runtime: str) -> None:
    assert runtime_of(path) == runtime
