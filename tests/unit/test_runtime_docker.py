"""docker's daemon.json: our keys, and every byte of the rest as it was."""

from __future__ import annotations

import json

import pytest

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.backends import docker
from driverforge_toolkit.runtime.formats.values import REMOVED
from driverforge_toolkit.runtime.model import WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from support.fakes.runtimemodel import DOCKER, daemon, json_with

DAEMON = daemon("docker")
FILE = DAEMON.config
HANDLERS = nvidia_handlers("/t")[:1]
NVIDIA = '{"path": "/t/nvidia-container-runtime", "args": []}'


def apply(text: str | None, **wanted: object) -> str:
    asked = WantedHandlers(**{"handlers": HANDLERS, **wanted})  # type: ignore[arg-type]
    data = DOCKER.patched(DAEMON, {FILE: text.encode() if text is not None else None}, {}, asked)[FILE]
    return (data or b"").decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a":1}', '{"a":1,"runtimes":{"nvidia": NVIDIA}}'),
        ('{"a": 1}', '{"a": 1, "runtimes": {"nvidia": NVIDIA}}'),
        ('{ "a": 1.50 }\n', '{ "a": 1.50, "runtimes": {"nvidia": NVIDIA} }\n'),
        (
            '{"runtimes": {"x": {"path":"y"}}, "b": 1e400}',
            '{"runtimes": {"x": {"path":"y"}, "nvidia": NVIDIA}, "b": 1e400}',
        ),
        ('{"runtimes": {}}', '{"runtimes": {"nvidia": NVIDIA}}'),
        (
            '{"runtimes": {"nvidia": {"path": "old", "x": 1}, "y": {}}}',
            '{"runtimes": {"nvidia": {"path": "/t/nvidia-container-runtime", "x": 1}, "y": {}}}',
        ),
    ],
)
def test_a_file_on_one_line_stays_on_one_line(before: str, after: str) -> None:
    assert apply(before) == after.replace("NVIDIA", NVIDIA)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["  ", "\t", "    "])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_a_file_of_lines_keeps_its_indentation_and_ends(end: str, indent: str, last: str) -> None:
    before = '{\nI"log-driver": "json-file",\nI"big": 12345678901234567890123\n}' + last
    new = (
        'I"runtimes": {\nII"nvidia": {\nIII"path": "/t/nvidia-container-runtime",\nIII"args": []\nII}\nI}\n}'
    )
    after = before.replace("0123\n}", f"0123,\n{new}")
    assert apply(before.replace("I", indent).replace("\n", end)) == after.replace("I", indent).replace(
        "\n", end
    )


@pytest.mark.parametrize("before", [None, "", " \n", "{}", "{}\n", "\ufeff{}"])
def test_an_empty_file_becomes_one_of_lines(before: str | None) -> None:
    after = apply(before, default="nvidia", cdi=True)
    assert after.count("\n    ") > 3
    assert json.loads(after.removeprefix("\ufeff")) == {
        "runtimes": {"nvidia": json.loads(NVIDIA)},
        "default-runtime": "nvidia",
        "features": {"cdi": True},
    }


def test_cdi_adds_its_key_to_the_features_that_are_there() -> None:
    """Upstream's 1.20.0 drops the others (PR 2049)."""
    after = json.loads(apply('{"features": {"buildkit": true, "containerd-snapshotter": true}}', cdi=True))
    assert after["features"] == {"buildkit": True, "containerd-snapshotter": True, "cdi": True}


def test_a_file_that_has_it_all_is_not_touched() -> None:
    once = apply('{ "x" : 1 }', default="nvidia", cdi=True)
    assert apply(once, default="nvidia", cdi=True) == once


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1} trailing', "not valid JSON"),
        ('{"a": 1, // comment\n"b": 2}', "not valid JSON"),
        ('{"a": 1, "a": 2}', '"a" is there twice'),
        ('{"x": {"a": 1, "a": 2}}', '"a" is there twice'),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1,}', "not valid JSON"),
        ("[1]", "not an object"),
        ('"x"', "not an object"),
        ('{"a": ' + "[" * 100_000, "not valid JSON"),
        ('{"a": ' + "9" * 6000 + "}", "not valid JSON"),
        ('{"runtimes": []}', "`runtimes` is not an object"),
        ('{"runtimes": {"x": 1}}', r"runtimes\.x is not an object"),
        ('{"default-runtime": 1}', "`default-runtime` is not a text"),
        ('{"features": true}', "`features` is not an object"),
    ],
)
def test_a_broken_file_is_one_message(text: str, says: str) -> None:
    with pytest.raises(InputError, match=FILE) as caught:
        apply(text)
    assert caught.value.resolution
    assert says.replace("\\", "") in "\n".join([caught.value.brief, *caught.value.details])


def test_every_wrong_type_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        apply('{"runtimes": [], "features": 1, "default-runtime": null}')
    assert len(caught.value.details) == 3


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    with pytest.raises(InputError, match="not UTF-8") as caught:
        DOCKER.patched(DAEMON, {FILE: b'{\n"a": "\xff"}'}, {}, WantedHandlers(handlers=HANDLERS))
    assert caught.value.details == (f"{FILE}:2: invalid start byte",)


# -- undoing it


@pytest.mark.parametrize(
    "original", [None, "", '{"default-runtime": "crun", "features": {"x": true}}', '{\n  "runtimes": {}\n}\n']
)
def test_the_earlier_values_come_back_and_others_changes_stay(original: str | None) -> None:
    before = original.encode() if original is not None else None
    written = apply(original, default="nvidia", cdi=True).encode()
    assert DOCKER.undone(FILE, original=before, written=written, current=written).data == before
    theirs = json_with(written, ("log-level",), "warn")
    undone = DOCKER.undone(FILE, original=before, written=written, current=theirs)
    assert json.loads(undone.data or b"") == {**json.loads(original or "{}"), "log-level": "warn"}
    assert undone.kept == ()


def test_a_runtime_beside_ours_does_not_go_with_them() -> None:
    written = apply('{"runtimes": {}}').encode()
    theirs = json_with(written, ("runtimes", "kata", "path"), "/k")
    undone = DOCKER.undone(FILE, original=b'{"runtimes": {}}', written=written, current=theirs)
    assert json.loads(undone.data or b"") == {"runtimes": {"kata": {"path": "/k"}}}


def test_a_handler_that_others_changed_or_made_the_default_stays() -> None:
    """dockerd does not start with a default runtime that it has not."""
    written = apply("{}").encode()
    theirs = json_with(written, ("runtimes", "nvidia", "path"), "/k")
    undone = DOCKER.undone(FILE, original=b"{}", written=written, current=theirs)
    assert json.loads(undone.data or b"") == {"runtimes": {"nvidia": {"path": "/k", "args": []}}}
    assert undone.kept == (("runtimes", "nvidia", "path"),)
    default = json_with(written, ("default-runtime",), "nvidia")
    left = DOCKER.undone(FILE, original=b"{}", written=written, current=default)
    assert json.loads(left.data or b"") == json.loads(default)


def test_a_foreign_installation_is_stripped() -> None:
    text = b'{"default-runtime": "nvidia", "features": {"cdi": true}, "runtimes": {"nvidia": {}, "x": {}}}'
    after = DOCKER.stripped(DAEMON, {FILE: text}, ("nvidia", "nvidia-cdi"))[FILE]
    assert json.loads(after or b"") == {"features": {"cdi": True}, "runtimes": {"x": {}}}
    assert DOCKER.stripped(DAEMON, {FILE: b"{ }"}, ("nvidia",)) == {FILE: b"{ }"}
    assert DOCKER.stripped(DAEMON, {FILE: None}, ("nvidia",)) == {FILE: None}


# -- what the daemon makes of it


@pytest.mark.parametrize(
    ("before", "after", "needs"),
    [
        ({"a": 1}, {"a": 1}, "none"),
        ({}, {"runtimes": {}}, "none"),
        ({}, {"runtimes": {"nvidia": {"path": "x"}}}, "reload"),
        ({"default-runtime": "runc"}, {"default-runtime": "nvidia"}, "reload"),
        ({"default-runtime": "nvidia"}, {}, "restart"),  # SIGHUP keeps the old value of a key that is gone
        ({"runtimes": {"nvidia": {"path": "x"}}}, {}, "restart"),
        ({"runtimes": {"nvidia": {"path": "x"}}}, {"runtimes": {}}, "reload"),
        ({}, {"features": {"cdi": True}}, "restart"),
        ({}, {"data-root": "/x"}, "restart"),
    ],
)
def test_how_a_change_comes_into_force(
    before: dict[str, object], after: dict[str, object], needs: str
) -> None:
    assert docker.activation(before, after) == needs


def test_only_our_keys_are_ours() -> None:
    wanted = WantedHandlers(handlers=HANDLERS, default="nvidia", cdi=True)
    ours = {"runtimes": {"nvidia": {"path": "x"}}, "default-runtime": "nvidia", "features": {"cdi": True}}
    assert docker.foreign({}, ours, wanted) == {}
    theirs = {**ours, "runtimes": {"kata": {"path": "k"}}, "debug": True}
    assert set(docker.foreign(ours, theirs, wanted)) == {("runtimes", "kata", "path"), ("debug",)}
    assert docker.foreign({}, {"features": {"cdi": True}}, WantedHandlers(handlers=HANDLERS)) == {
        ("features", "cdi"): (REMOVED, True)
    }


def test_low_level_runtimes_are_never_nvidias() -> None:
    config = {
        "default-runtime": "gpu",
        "runtimes": {"gpu": {"path": "/t/nvidia-container-runtime"}, "crun": {"path": "/usr/bin/crun"}},
    }
    assert docker.low_level_runtimes(config) == ("runc", "/usr/bin/crun")
    assert docker.low_level_runtimes({"default-runtime": "mine", "runtimes": {"mine": {"path": "/m"}}}) == (
        "/m",
        "runc",
    )


@pytest.mark.parametrize(
    ("document", "options", "expected"),
    [
        ({"a": 1}, ["-H", "unix:///x"], {}),
        ({}, ["--add-runtime", "x=/x", "--add-runtime=y=/y=z"], {"x": "/x", "y": "/y=z"}),
        ({"runtimes": {"x": {"path": "/ours"}}}, ["--add-runtime=x=/x"], {"x": "/ours"}),
        ({"runtimes": {"y": {"path": "/y"}}}, ["--add-runtime=x=/x"], {"x": "/x", "y": "/y"}),
    ],
)
def test_runtimes_of_the_command_line_are_seen_below_those_of_the_file(
    document: dict[str, object], options: list[str], expected: dict[str, object]
) -> None:
    view = docker.with_options(document, options)
    assert docker.handlers(view) == expected
    assert {**view, "runtimes": 0} == {**document, "runtimes": 0}
    named = docker.with_options(document, [*options, "--default-runtime", "y"])
    assert named["default-runtime"] == "y"
    site = {"default-runtime": "x"}
    missing = docker.unservable(docker.with_options({**document, **site}, options))
    assert bool(missing) is ("x" not in expected)
