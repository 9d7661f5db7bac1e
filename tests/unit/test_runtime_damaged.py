"""Odd and broken containerd configurations: kept to the byte, or one message."""

from __future__ import annotations

import pytest

from driverforge_core.errors import DriverforgeError, InputError
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.model import WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from support.fakes.runtimemodel import CONTAINERD, daemon, effective

patched, undone = CONTAINERD.patched, CONTAINERD.undone
DAEMON = daemon(version=(1, 6, 20))
ROOT, DROP_IN = DAEMON.config, DAEMON.drop_in
WANTED = WantedHandlers(handlers=nvidia_handlers("/usr/local/nvidia/toolkit"), default="nvidia")
IMPORT = b'imports = ["/etc/containerd/conf.d/*.toml"]'
CRI = b'plugins."io.containerd.grpc.v1.cri"'


def apply(root: bytes, drop_in: bytes | None = None) -> dict[str, bytes | None]:
    files = {ROOT: root, DROP_IN: drop_in}
    return patched(DAEMON, files, effective(DAEMON, files), WANTED)


def attempt(root: bytes) -> bytes | DriverforgeError:
    try:
        return patched(DAEMON, {ROOT: root, DROP_IN: None}, {}, WANTED)[ROOT] or b""
    except DriverforgeError as error:
        return error


@pytest.mark.parametrize(
    "data",
    [
        b"a = " + b"[" * 100_000,
        b"a = " + b"{b=" * 3000,
        b"version = 2\nx = " + b"9" * 6000 + b"\n",
        b"version = 2\nversion = 2\n",
        b"version = 2\n[a]\nb = 1\n[a]\n",
        b"version = 2\na.b = 1\n[a]\n",
        b"version = 2\n\x00",
        b"version = 2\rx = 1\n",
    ],
)
def test_what_the_parser_gives_up_on_is_one_message(data: bytes) -> None:
    with pytest.raises(InputError, match=r"config\.toml is not valid TOML") as caught:
        patched(DAEMON, {ROOT: data}, {}, WANTED)
    assert len(caught.value.details) == 1


@pytest.mark.parametrize(
    ("more", "value"),
    [
        (b"x = {\n  b = 1, # why\n  c = [1],\n}\n", {"b": 1, "c": [1]}),
        (b'x = "\\e[0m\\x41"\n', "\x1b[0mA"),
    ],
)
def test_toml_1_1_is_read_and_edited_for_daemons_that_read_it(more: bytes, value: object) -> None:
    assert parse(more, ROOT) == {"x": value}
    assert apply(b"version = 2\n" + more)[ROOT] == b"version = 2\n" + more + IMPORT + b"\n"


def test_a_mistake_beside_toml_1_1_is_told_with_its_own_line() -> None:
    with pytest.raises(InputError, match="not valid TOML") as caught:
        parse(b"x = {\n  b = 1,\n}\ny = [\n", ROOT)
    assert "line 5" in caught.value.details[0]


def test_a_key_of_too_many_parts_is_given_up_on_before_it_takes_all_memory() -> None:
    with pytest.raises(InputError, match="not valid TOML") as caught:
        parse(b"x = {\n}\n[" + b"a." * 100_000 + b"a]\n", ROOT)
    assert caught.value.details == (f"{ROOT}: more than 1000 dots in one line (line 3)",)


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    with pytest.raises(InputError, match="not UTF-8") as caught:
        patched(DAEMON, {ROOT: b"version = 2\n# \xff\n"}, {}, WANTED)
    assert caught.value.details == (f"{ROOT}:2: invalid start byte",)


def test_keys_nested_very_deep_are_refused_or_kept_and_never_lost() -> None:
    """How deep an interpreter can look differs: 3.11 gives up on this one, 3.13 does not."""
    outcome = attempt(b"version = 2\n[" + b".".join([b"a"] * 3000) + b"]\n")
    if isinstance(outcome, DriverforgeError):
        assert ROOT in outcome.brief
    else:
        assert b".".join([b"a"] * 3000) in outcome
        assert IMPORT in outcome


SHAPES = {
    "line ends of Windows": b"# a\r\nversion = 2\r\n\r\n[" + CRI + b']\r\nsandbox_image = "x" # y\r\n',
    "no final line end": b"version = 2\n[" + CRI + b']\nsandbox_image = "x"',
    "inline tables": (
        b'version = 2\nplugins = { "io.containerd.grpc.v1.cri" = { cni = { bin_dir = "/x" } } } # z\n'
    ),
    "dotted keys": b"version = 2\n"
    + CRI
    + b'.cni.bin_dir = "/x"\n'
    + CRI
    + b".containerd.runtimes.kata.runtime_type = 'k'\n",
    "dotted keys after a header": (
        b'version = 2\n[plugins]\n"io.containerd.grpc.v1.cri".cni.bin_dir = "/x"\n[ttrpc]\nuid.x = 1\n'
    ),
    "arrays of tables": b"version = 2\n[[x]]\na = 1 # b\n[[x]]\n[[x.y]]\nc = 2\n["
    + CRI
    + b".registry]\n[["
    + CRI
    + b".registry.z]]\nq = 1\n",
    "comments everywhere": b"# a\nversion = 2 # b\n# c\n[ plugins ] # d\n  # e\n[ "
    + CRI
    + b" ] # f\nx = [ # g\n  1, # h\n  # i\n] # j\n# k",
    "a byte order mark": b"\xef\xbb\xbfversion = 2\n",
    "texts of many lines": b"version = 2\nx = \"\"\"\n[version]\nimports = 1\n\"\"\"\ny = '''\n# z'''\n",
    "numbers that are none": b"version = 2\na = nan\nb = -inf\nc = [nan, {d = nan}]\n["
    + CRI
    + b"]\ne = nan\n",
    "dates and spellings": (
        b"version = 0x2\na = 1979-05-27T07:32:00-08:00\nb = 1_000\nc = +1.0e3\nd = 07:32:00\n"
        b"'e f' = \"\\u00e9\"\n"
    ),
    "a header first": b"[debug]\nlevel = 'info'\n",
    "nothing but blanks": b"\n\n  \n",
}


@pytest.mark.parametrize("root", SHAPES.values(), ids=SHAPES)
def test_a_root_file_of_any_form_gets_the_import_alone_and_comes_back(root: bytes) -> None:
    after = apply(root)
    written = after[ROOT] or b""
    added = [line for line in written.splitlines() if line not in root.splitlines() and line.strip()]
    assert b"".join(added).replace(b"version = 2", b"").replace(b"\xef\xbb\xbf", b"") == IMPORT
    assert all(line in written.splitlines() for line in root.splitlines())
    assert undone(ROOT, original=root, written=written, current=written).data == root
    theirs = undone(ROOT, original=root, written=written, current=written + b"\n# later\n").data or b""
    assert theirs.split() == (root + b"\n# later\n").split()
    assert parse(after[DROP_IN] or b"", DROP_IN)["version"] == 2


@pytest.mark.parametrize("drop_in", SHAPES.values(), ids=SHAPES)
def test_a_drop_in_of_any_form_is_edited_and_comes_back(drop_in: bytes) -> None:
    written = apply(IMPORT + b"\nversion = 2\n", drop_in)[DROP_IN] or b""
    assert b"/usr/local/nvidia/toolkit/nvidia-container-runtime.legacy" in written
    assert undone(DROP_IN, original=drop_in, written=written, current=written).data == drop_in


def test_two_megabytes_of_comments_are_carried() -> None:
    comments = b"# a line of comment, of which there are very many in this file\n" * 32_000
    root = b"version = 2\n" + comments + b"[" + CRI + b']\nsandbox_image = "x"\n'
    written = apply(root)[ROOT] or b""
    assert written == root.replace(b"version = 2\n", b"version = 2\n" + IMPORT + b"\n", 1)
    assert (
        undone(ROOT, original=root, written=written, current=written + b"# later\n").data
        == root + b"# later\n"
    )
