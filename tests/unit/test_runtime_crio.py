"""CRI-O's drop-in and its legacy hook file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import tomllib

from driverforge_core.errors import InputError, Unavailable
from driverforge_host.ports import Connection
from driverforge_toolkit.runtime.backends import crio, oci_hook
from driverforge_toolkit.runtime.find import cri, sockethttp
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.model import WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from driverforge_toolkit.runtime.transaction.activation import reports
from support.fakes.runtimemodel import CRIO, Files, daemon, effective

DAEMON = daemon("crio")
ROOT, DROP_IN = DAEMON.config, DAEMON.drop_in
HANDLERS = nvidia_handlers("/t")[:1]


def apply(root: str | None = None, drop_in: str | None = None, **wanted: object) -> str:
    files: Files = {
        ROOT: root.encode() if root is not None else None,
        DROP_IN: drop_in.encode() if drop_in is not None else None,
    }
    after = CRIO.patched(
        DAEMON, files, effective(DAEMON, files), WantedHandlers(**{"handlers": HANDLERS, **wanted})
    )  # type: ignore[arg-type]
    assert set(after) == {DROP_IN}  # the root file is never written
    return (after[DROP_IN] or b"").decode()


def nvidia(text: str) -> object:
    return lookup(tomllib.loads(text), (*crio.RUNTIMES, "nvidia"))


def test_a_handler_takes_after_the_default_runtime_of_all_files() -> None:
    root = (
        '[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\n'
        'runtime_path = "/usr/libexec/crio/crun"\n'
    )
    root += 'runtime_root = "/run/crun"\nruntime_type = "vm"\n'
    assert nvidia(apply(root)) == {
        "runtime_path": "/t/nvidia-container-runtime",
        "runtime_root": "/run/crun",
        "runtime_type": "oci",
    }


def test_one_that_only_the_daemon_knows_is_a_template_without_its_empty_fields() -> None:
    seen = {
        "crio": {
            "runtime": {
                "default_runtime": "crun",
                "runtimes": {"crun": {"runtime_root": "/run/crun", "monitor_cgroup": ""}},
            }
        }
    }
    after = CRIO.patched(DAEMON, {}, seen, WantedHandlers(handlers=HANDLERS))[DROP_IN]
    assert nvidia((after or b"").decode()) == {
        "runtime_root": "/run/crun",
        "runtime_path": "/t/nvidia-container-runtime",
        "runtime_type": "oci",
    }


@pytest.mark.parametrize("name", ["gpu", "nvidia"])
def test_a_default_handler_of_nvidias_hands_on_its_settings_and_not_its_program(name: str) -> None:
    root = (
        f'[crio.runtime]\ndefault_runtime = "{name}"\n[crio.runtime.runtimes.{name}]\n'
        'runtime_path = "/x/nvidia-container-runtime"\nmonitor_path = "/conmon"\n'
    )
    assert nvidia(apply(root)) == {
        "monitor_path": "/conmon",
        "runtime_path": "/t/nvidia-container-runtime",
        "runtime_type": "oci",
    }


def test_a_default_that_another_file_gives_to_our_handler_is_given_up_in_ours() -> None:
    root = '[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.crun]\nruntime_path = "/c"\n'
    assert "default_runtime" not in apply(root)
    assert lookup(tomllib.loads(apply(root, release_default=True)), crio.DEFAULT) == "runc"
    assert "default_runtime" not in apply(root.replace("nvidia", "crun"), release_default=True)


def test_a_runtime_of_a_later_file_replaces_all_of_the_earlier_one() -> None:
    """cri-o/cri-o decodes each file over the last, and makes a table of its map of runtimes anew."""
    below = {
        "crio": {"x": 1, "runtime": {"runtimes": {"crun": {"runtime_path": "/c", "monitor_path": "/m"}}}}
    }
    above = {"crio": {"runtime": {"pids_limit": 9, "runtimes": {"crun": {"runtime_root": "/r"}}}}}
    assert crio.layered(below, above) == {
        "crio": {"x": 1, "runtime": {"pids_limit": 9, "runtimes": {"crun": {"runtime_root": "/r"}}}}
    }
    assert crio.layered({}, {}) == {}
    drop_in = '[crio.runtime.runtimes.runc]\nruntime_root = "/run/mine"\n'
    assert nvidia(apply('[crio.runtime.runtimes.runc]\nmonitor_path = "/m"\n', drop_in)) == {
        "runtime_root": "/run/mine",
        "runtime_path": "/t/nvidia-container-runtime",
        "runtime_type": "oci",
    }


def test_what_would_lead_past_our_program_or_is_for_other_types_is_not_taken_over() -> None:
    """pkg/config/config.go of cri-o/cri-o: ValidateRuntimes, ValidateRuntimeConfigPath."""
    root = (
        '[crio.runtime]\ndefault_runtime = "kata"\n[crio.runtime.runtimes.kata]\nruntime_type = "vm"\n'
        'runtime_path = "/k"\nruntime_config_path = "/k.toml"\ninherit_default_runtime = true\n'
        'platform_runtime_paths = { "linux/amd64" = "/k" }\nstream_websockets = true\nruntime_root = "/r"\n'
    )
    assert nvidia(apply(root)) == {
        "runtime_root": "/r",
        "runtime_path": "/t/nvidia-container-runtime",
        "runtime_type": "oci",
    }


def test_a_default_of_the_command_line_counts_before_the_files() -> None:
    tables = {"runc": {"runtime_root": "/r"}, "crun": {"runtime_root": "/c"}}
    seen = {"crio": {"runtime": {"default_runtime": "runc", "runtimes": tables}}}
    root = b'[crio.runtime]\ndefault_runtime = "crun"\n'
    after = CRIO.patched(DAEMON, {ROOT: root}, seen, WantedHandlers(handlers=HANDLERS))[DROP_IN]
    assert nvidia((after or b"").decode()) == {
        "runtime_root": "/r",
        "runtime_path": "/t/nvidia-container-runtime",
        "runtime_type": "oci",
    }


# --- what the running daemon tells

LISTED = cri.RuntimeStatus(pid=7, name="cri-o", version="1.31.2", handlers={"crun": None})
CONFIG = (
    '[crio]\n[crio.runtime]\ndefault_runtime = "crun"\n'
    '[crio.runtime.runtimes.nvidia]\nruntime_path = "/t/n"\n[crio.runtime.runtimes.crun]\n'
)


def test_its_configuration_has_programs_and_the_default() -> None:
    seen = sockethttp.parse_config(f"HTTP/1.0 200 OK\r\n\r\n{CONFIG}".encode(), LISTED)
    assert (seen.handlers, seen.default, seen.pid) == ({"crun": "", "nvidia": "/t/n"}, "crun", 7)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "HTTP/1.0 404 Not Found\r\n\r\n",
        "[",
        "[crio]\nruntime = 1\n",
        "[crio.runtime]\n",
        f"x = {'[' * 100_000}",
    ],
    ids=["nothing", "404", "no TOML", "no table", "no runtimes", "too deep"],
)
def test_any_other_answer_is_one_message(answer: str) -> None:
    head = "" if answer.startswith("HTTP") or not answer else "HTTP/1.0 200 OK\r\n\r\n"
    with pytest.raises(Unavailable, match="GET /config"):
        sockethttp.parse_config((head + answer).encode(), LISTED)


class Mute:
    """A CRI-O that ends the connection of a GET /config without an answer."""

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        yield cast(Connection, SimpleNamespace(send=lambda data: None, receive=lambda size: b""))


@pytest.mark.parametrize(("listed", "lists"), [({"crun": None}, True), ({}, False)])
def test_one_that_tells_no_configuration_counts_by_what_it_lists(
    listed: dict[str, None], lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cri, "status", lambda *_, **__: replace(LISTED, handlers=listed))
    seen = sockethttp.crio_status(Mute(), "/run/crio/crio.sock")
    assert (seen.handlers, seen.lists, seen.default) == (listed, lists, "")


def test_what_is_not_listed_is_believed() -> None:
    silent = replace(LISTED, handlers={}, lists=False)
    assert silent.believed(["nvidia"]) == {"nvidia": None}
    assert LISTED.believed(["nvidia"]) == {"crun": None}
    assert reports(silent, "nvidia", "/t/n")
    assert not reports(LISTED, "nvidia", "/t/n")


def test_further_options_and_the_default() -> None:
    after = apply(default="nvidia", options={"monitor_path": "/c"})
    assert lookup(tomllib.loads(after), crio.DEFAULT) == "nvidia"
    assert nvidia(after) == {
        "monitor_path": "/c",
        "runtime_path": "/t/nvidia-container-runtime",
        "runtime_type": "oci",
    }


def test_what_else_is_in_our_drop_in_stays() -> None:
    theirs = '# theirs\n[crio.image]\nx = 1 # why\n[crio.runtime]\ndefault_runtime = "nvidia"\n'
    after = apply(None, theirs)
    assert after.startswith(theirs)
    assert "default_runtime" not in apply(None, theirs, release_default=True)
    assert (
        CRIO.undone(DROP_IN, original=theirs.encode(), written=after.encode(), current=after.encode()).data
        == theirs.encode()
    )
    undone = CRIO.undone(
        DROP_IN, original=theirs.encode(), written=after.encode(), current=after.encode() + b"# later\n"
    )
    assert undone.data == theirs.encode() + b"# later\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[crio", "not valid TOML"),
        ("crio = 1\n", "crio is not a table"),
        ("[crio.runtime]\nruntimes = []\n", "runtimes is not a table"),
        ("[crio.runtime.runtimes]\nx = 1\n", "x is not a table"),
    ],
)
def test_a_broken_file_is_one_message(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        CRIO.patched(DAEMON, {ROOT: text.encode()}, {}, WantedHandlers(handlers=HANDLERS))
    assert ROOT in caught.value.brief


def test_a_foreign_installation_is_stripped() -> None:
    text = b'[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\nruntime_path = "x"\n'
    assert CRIO.stripped(DAEMON, {DROP_IN: text}, ("nvidia",)) == {DROP_IN: None}
    more = CRIO.stripped(DAEMON, {DROP_IN: text + b"[crio.image]\nx = 1\n"}, ("nvidia",))[DROP_IN]
    assert parse(more or b"", "") == {"crio": {"image": {"x": 1}}}
    assert CRIO.stripped(DAEMON, {DROP_IN: b"# x\n"}, ("nvidia",)) == {DROP_IN: b"# x\n"}
    assert CRIO.stripped(DAEMON, {}, ("nvidia",)) == {DROP_IN: None}


def test_how_a_change_comes_into_force_and_which_keys_are_ours() -> None:
    wanted = WantedHandlers(handlers=HANDLERS, default="nvidia")
    ours = tomllib.loads(apply(default="nvidia"))
    assert crio.activation({}, {}) == "none"
    # after a SIGHUP, pods do not get the handler that status and /config show (cri-o/cri-o#10202)
    assert crio.activation({}, ours) == "restart"
    assert crio.activation({}, {"crio": {"image": {"x": 1}}}) == "restart"
    assert crio.foreign({}, ours, wanted) == {}
    assert set(crio.foreign(ours, {"crio": {"runtime": {"selinux": True}}}, wanted)) == {
        ("crio", "runtime", "selinux"),
        ("crio", "runtime", "default_runtime"),
    }


def test_low_level_runtimes() -> None:
    text = (
        '[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\n'
        'runtime_path = "/usr/libexec/crio/crun"\n'
    )
    assert crio.low_level_runtimes(tomllib.loads(text)) == ("/usr/libexec/crio/crun",)
    assert crio.low_level_runtimes({}) == ()


def test_the_hook_finds_the_programs_beside_it() -> None:
    def search(program: str) -> str:
        return str(json.loads(oci_hook.rendered(program))["hook"]["env"][0])

    assert (
        search("/opt/nvidia/nvidia-container-runtime-hook")
        == "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/nvidia"
    )
    assert (
        search("/usr/bin/nvidia-container-runtime-hook")
        == "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )


def test_a_hook_is_taken_out_where_it_is_ours() -> None:
    ours = oci_hook.rendered("/t/nvidia-container-runtime-hook")
    assert oci_hook.undone(original=b"{}", written=ours, current=ours) == b"{}"
    assert oci_hook.undone(original=None, written=ours, current=b"{ }") == b"{ }"
    assert oci_hook.stripped(ours, "x.json") is None
    assert oci_hook.stripped(None, "x.json") is None
    assert (
        oci_hook.stripped(b'{"hook": {"path": "/usr/bin/other"}}', "x.json")
        == b'{"hook": {"path": "/usr/bin/other"}}'
    )
    with pytest.raises(InputError, match="not valid JSON"):
        oci_hook.stripped(b"{", "x.json")
