"""Sections of templates from which k3s, rke2 and microk8s make containerd's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tomllib

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, CRI_V3
from driverforge_toolkit.runtime.backends.template import (
    BASE,
    BEGIN,
    END,
    TemplateBackend,
    patched,
    root_without_ours,
)
from driverforge_toolkit.runtime.backends.template_tables import tables_of
from driverforge_toolkit.runtime.formats.values import lookup
from driverforge_toolkit.runtime.model import RUNC, Supervisor, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from support.fakes.runtimemodel import OnBytes, UndoneBytes, daemon

WANTED = WantedHandlers(handlers=nvidia_handlers("/t")[:2])
NAME = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl"
undone = OnBytes(TemplateBackend(template=NAME, version=3)).undone


def made(template: bytes, base: str = "version = 3\n") -> dict[str, object]:
    """The configuration that k3s makes of a template."""
    return tomllib.loads(template.decode().replace(BASE, base).replace("{{ .SystemdCgroup }}", "true"))


@pytest.mark.parametrize(("version", "section"), [(2, CRI_V2), (3, CRI_V3)])
def test_no_template_becomes_the_distributions_own_and_our_tables(
    version: int, section: tuple[str, ...]
) -> None:
    after = patched(None, NAME, WANTED, version=version)
    assert after.decode().startswith(f"{BASE}\n{BEGIN}\n")
    runtime = lookup(made(after), (*section, "containerd", "runtimes", "nvidia"))
    assert runtime == {
        "runtime_type": RUNC,
        "options": {"BinaryName": "/t/nvidia-container-runtime", "SystemdCgroup": True},
    }
    assert undone(NAME, original=None, written=after, current=after).data is None


def test_runtimes_that_k3s_finds_itself_are_left_to_it() -> None:
    """A table that is there twice keeps its containerd from starting."""
    after = patched(None, NAME, WANTED, version=3, present=["nvidia"])
    handlers = lookup(made(after), (*CRI_V3, "containerd", "runtimes"))
    assert set(handlers) == {"nvidia-cdi"}  # type: ignore[call-overload]
    assert patched(b"x\n", NAME, WANTED, version=3, present=["nvidia", "nvidia-cdi"]) == b"x\n"


@pytest.mark.parametrize(
    "before",
    [
        b"version = 2\n[a]\nb = 1\n",
        b"version = 2\r\n[a]\r\nb = 1\r\n",
        b"version = 2",
        b"# {{ if .x }}\n{{ end }}\n",
    ],
)
def test_a_template_of_the_site_keeps_its_text(before: bytes) -> None:
    after = patched(before, "containerd-template.toml", WANTED, version=2)
    assert after.startswith(before)
    assert b"SystemdCgroup" not in after
    assert after.count(b"\r\n") in (0, after.count(b"\n"))
    assert patched(after, NAME, WANTED, version=2) == after
    assert undone(NAME, original=before, written=after, current=after).data == before
    later = undone(NAME, original=before, written=after, current=after + b"# later\n").data or b""
    assert later.replace(b"\n", b"") == (before + b"# later\n").replace(b"\n", b"")


@pytest.mark.parametrize("value", ["true", "{{ .SystemdCgroup }}", "true # kubelet's"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_template_of_the_site_gives_our_handlers_the_cgroup_driver_of_its_runc(
    value: str, end: str
) -> None:
    """As the copies of config.toml that people make of it, before they add a runtime."""
    other = (
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]\nSystemdCgroup = 'no'\n"
    )
    runc = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n  Root = ''\n"
    before = f"version = 3\n{other}{runc}  SystemdCgroup = {value}\n".replace("\n", end).encode()
    after = patched(before, NAME, WANTED, version=3)
    for name in ("nvidia", "nvidia-cdi"):
        options = lookup(made(after), (*CRI_V3, "containerd", "runtimes", name, "options"))
        assert isinstance(options, dict)
        assert options["SystemdCgroup"] is True
    assert undone(NAME, original=before, written=after, current=after).data == before


def test_a_newer_section_takes_the_place_of_an_older() -> None:
    old = patched(b"version = 2\n", NAME, WANTED, version=2) + b"# theirs\n"
    new = patched(old, NAME, WantedHandlers(handlers=nvidia_handlers("/new")), version=2)
    assert new.count(BEGIN.encode()) == new.count(END.encode()) == 1
    assert b"/t/nvidia" not in new
    assert b"# theirs\n" in new


def test_options_are_written_as_toml() -> None:
    wanted = WantedHandlers(
        handlers=nvidia_handlers('/a "b"')[:1], options={"SystemdCgroup": False, "Root": "é", "IoUid": 7}
    )
    options = lookup(
        made(patched(None, NAME, wanted, version=3)), (*CRI_V3, "containerd", "runtimes", "nvidia", "options")
    )
    assert options == {
        "BinaryName": '/a "b"/nvidia-container-runtime',
        "SystemdCgroup": False,
        "Root": "é",
        "IoUid": 7,
    }
    with pytest.raises(InputError, match="option x"):
        patched(None, NAME, WantedHandlers(handlers=WANTED.handlers, options={"x": {}}), version=3)


def test_annotations_are_handed_to_the_program() -> None:
    wanted = WantedHandlers(handlers=WANTED.handlers, annotations=("cdi.k8s.io/*", 'a"b'))
    runtime = lookup(
        made(patched(None, NAME, wanted, version=3)), (*CRI_V3, "containerd", "runtimes", "nvidia-cdi")
    )
    assert isinstance(runtime, dict)
    assert runtime["container_annotations"] == ["cdi.k8s.io/*", 'a"b']


@pytest.mark.parametrize(
    ("before", "wanted", "says"),
    [
        (None, WantedHandlers(handlers=WANTED.handlers, default="nvidia"), "cannot set the default runtime"),
    ],
)
def test_what_has_no_correct_result_is_refused(
    before: bytes | None, wanted: WantedHandlers, says: str
) -> None:
    with pytest.raises(Unsupported, match=says) as caught:
        patched(before, NAME, wanted, version=3)
    assert caught.value.resolution


THEIRS = """[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes."nvidia"]
  # set up by hand
  runtime_type = "io.containerd.runc.v2"
  privileged_without_host_devices = true # why
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes."nvidia".options]
  binaryName = '/usr/bin/nvidia-container-runtime' # the package's
  Debug = {{ .Debug }}
"""


def theirs(change: Callable[[str], str] = str, *, start: str = f"{BASE}\n") -> bytes:
    return (start + change(THEIRS)).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", [f"{BASE}\n", "version = 3\n"])
def test_a_handler_of_the_template_gets_our_program_and_ours_take_after_it(start: str, end: str) -> None:
    before = theirs(start=start).replace(b"\n", end.encode())
    after = patched(before, NAME, WANTED, version=3)
    ours = b'"/t/nvidia-container-runtime"'
    assert after.startswith(before.replace(b"'/usr/bin/nvidia-container-runtime'", ours))
    parsed = made(after.replace(b"{{ .Debug }}", b"true"))
    handlers = lookup(parsed, (*CRI_V3, "containerd", "runtimes"))
    assert isinstance(handlers, dict)
    assert handlers["nvidia-cdi"] == {
        "runtime_type": RUNC,
        "privileged_without_host_devices": True,
        "options": {
            "BinaryName": "/t/nvidia-container-runtime.cdi",
            "Debug": True,
            **({"SystemdCgroup": True} if BASE in start else {}),
        },
    }
    assert handlers["nvidia"]["options"] == {"binaryName": "/t/nvidia-container-runtime", "Debug": True}
    assert patched(after, NAME, WANTED, version=3) == after
    assert undone(NAME, original=before, written=after, current=after).data == before
    later = undone(NAME, original=before, written=after, current=after + b"# later\n")
    assert later.data == before + b"# later\n"
    assert not later.kept


def test_a_program_that_somebody_named_since_stays() -> None:
    before = theirs()
    after = patched(before, NAME, WANTED, version=3)
    now = after.replace(b'"/t/nvidia-container-runtime"', b'"/other"')
    undid = undone(NAME, original=before, written=after, current=now)
    assert undid.data == before.replace(b"'/usr/bin/nvidia-container-runtime'", b'"/other"')
    assert undid.kept == (("containerd", "runtimes", "nvidia", "options", "BinaryName"),)


def test_a_cgroup_driver_that_the_templates_handler_states_is_the_only_one_in_ours() -> None:
    """containerd takes keys in any case: two of them are one that is there twice."""
    before = theirs(lambda text: text.replace("  Debug", "  systemdCgroup = false\n  Debug"))
    section = patched(before, NAME, WANTED, version=3).decode().partition(BEGIN)[2]
    assert "systemdCgroup = false" in section
    assert "SystemdCgroup" not in section


def test_a_template_whose_last_line_has_no_end_gets_one() -> None:
    after = patched(b"version = 3", NAME, WANTED, version=3)
    assert after.startswith(f"version = 3\n{BEGIN}\n".encode())
    assert lookup(made(after), (*CRI_V3, "containerd", "runtimes", "nvidia")) is not None


def test_a_program_that_was_never_ours_is_not_told_as_kept() -> None:
    kata = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata.options]\nBinaryName = '/k'\n"
    before = theirs(start=f"{BASE}\n{kata}")
    after = patched(before, NAME, WANTED, version=3)
    undid = undone(NAME, original=before, written=after, current=after.replace(b"'/k'", b"'/newer'"))
    assert undid == UndoneBytes(data=before.replace(b"'/k'", b"'/newer'"))


def test_a_handler_that_somebody_took_away_since_does_not_come_back() -> None:
    before, other = theirs(), f"{BASE}\n".encode()
    after = patched(before, NAME, WANTED, version=3)
    now = after.replace(theirs(start="").replace(b"'/usr/bin/nvidia", b'"/t/nvidia', 1), b"")
    now = other + now[now.index(BEGIN.encode()) :]
    assert undone(NAME, original=before, written=after, current=now) == UndoneBytes(data=other)


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (theirs(lambda text: text.replace("binaryName", "# binaryName")), "not one plain table"),
        (theirs(lambda text: text + text), "not one plain table"),
        (theirs(lambda text: text[: text.rindex("[plugins")] + text), "not one plain table"),
        (theirs(lambda text: text + text[text.rindex("[plugins") :]), "not one plain table"),
        (theirs(lambda text: text[text.rindex("[plugins") :]), "not one plain table"),
        (theirs(lambda text: text.replace("  # set", "  {{ if .x }}\n  # set")), "not one plain table"),
        (theirs(lambda text: text.replace("= true #", "= [\n")), "not one plain table"),
        (b'[plugins."x".containerd.runtimes.nvidia-cdi]\n', "nvidia-cdi: not one plain table"),
    ],
)
def test_a_handler_of_the_template_that_cannot_be_changed_in_its_place_is_refused(
    before: bytes, says: str
) -> None:
    with pytest.raises(Unsupported, match="has runtimes of these names already: nvidia") as caught:
        patched(before, NAME, WANTED, version=3)
    assert any(says in line for line in caught.value.details)
    assert caught.value.resolution


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"options": {"Debug": True}}, "Debug = true is asked for"),
        ({"annotations": ("a/*",)}, 'container_annotations = ["a/*"] is asked for'),
    ],
)
def test_what_is_asked_of_every_handler_has_to_be_what_the_templates_says(
    wanted: dict[str, Any], says: str
) -> None:
    asked = replace(WANTED, **wanted)
    with pytest.raises(Unsupported) as caught:
        patched(theirs(), NAME, asked, version=3)
    assert [says in line for line in caught.value.details] == [True]
    line = says.removesuffix(" is asked for")
    here = theirs(
        lambda text: text.replace("Debug = {{ .Debug }}", line).replace("  # set", f"  {line}\n  # set")
    )
    section = patched(here, NAME, asked, version=3).partition(BEGIN.encode())[2]
    assert line.encode() in section


DAEMON = daemon(drop_in="/x/99-nvidia.toml")


@pytest.mark.parametrize(
    ("source", "added"),
    [
        (f"{BASE}\n", True),
        ("version = 3\n{{ range .ExtraRuntimes }}{{ end }}\n", True),
        ("version = 3\n", False),
    ],
)
def test_what_k3s_finds_by_itself_counts_where_its_template_says_so(source: str, added: bool) -> None:
    edit = OnBytes(TemplateBackend(template=NAME, version=3, own=("nvidia",)))
    written = edit.patched(DAEMON, {NAME: source.encode()}, {}, WANTED)[NAME] or b""
    assert (b'runtimes."nvidia"]' in written) is not added
    both = {NAME: theirs(start=source)}
    if added:
        with pytest.raises(Unsupported) as caught:
            edit.patched(DAEMON, both, {}, WANTED)
        assert "the distribution adds a runtime of this name by itself" in caught.value.details[0]
    else:
        assert b'"/t/nvidia-container-runtime"' in (edit.patched(DAEMON, both, {}, WANTED)[NAME] or b"")


def test_the_root_file_is_foreseen_with_the_programs_of_the_template() -> None:
    edit = TemplateBackend(template=NAME, version=3)
    root = made_text(theirs())
    view = tomllib.loads(root.decode())
    source = OnBytes(edit).patched(DAEMON, {NAME: theirs()}, view, WANTED)[NAME] or b""
    then = edit.rendered(DAEMON, root, source, view, WANTED)
    assert tomllib.loads(then.decode()) == tomllib.loads(made_text(source).decode())
    # as the next plan sees it: made of a template with ours, and to be made of one without
    assert root_without_ours(made_text(source), theirs(), NAME) == root


def made_text(template: bytes) -> bytes:
    runc = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]"
    base = f"version = 3\n{runc}\nSystemdCgroup = true\n"
    text = template.decode().replace(f"{BASE}\n", base).replace("{{ .SystemdCgroup }}", "true")
    return text.replace("{{ .Debug }}", "false").encode()


def test_handlers_that_somebody_else_wrote_are_not_taken_out_of_a_template() -> None:
    k3s = replace(DAEMON, supervisor=Supervisor(kind="k3s"))
    with pytest.raises(Unsupported, match=f"is made of {NAME} and of programs that k3s finds") as caught:
        OnBytes(TemplateBackend(template=NAME, version=3)).stripped(k3s, {NAME: theirs()}, ("nvidia",))
    assert "by hand" in caught.value.resolution


def test_a_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        patched(b"\xff", NAME, WANTED, version=3)


def test_one_that_somebody_removed_stays_away() -> None:
    assert undone(NAME, original=b"x", written=b"y", current=None).data is None


def test_a_comment_is_one_line_whatever_is_in_it() -> None:
    """U+2028 and U+0085 may stand in a comment of TOML; what is behind them is no key."""
    table = '[plugins.cri.containerd.runtimes."nvidia"]\n'
    options = f'{table[:-2]}.options]\nBinaryName = "/x"\n'
    text = f'{table}a = "b"\r\n# see\u2028c = "d"\n# or\x85the page\ne = "f"\n{options}'
    assert tables_of(text, "nvidia") == ({"a": '"b"', "e": '"f"'}, {"BinaryName": '"/x"'})


def test_a_value_that_is_nested_too_deep_is_not_plain() -> None:
    table = '[plugins.cri.containerd.runtimes."nvidia"]\n'
    text = f'{table}a = {"[" * 100_000}\n{table[:-2]}.options]\nBinaryName = "/x"\n'
    assert tables_of(text, "nvidia") is None
