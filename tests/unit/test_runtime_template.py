"""Sections of templates from which k3s, rke2 and microk8s make containerd's configuration."""

from __future__ import annotations

import pytest
import tomllib

from driverforge_core.errors import InputError, Unsupported
from driverforge_node.runtime.backends.containerd_config import CRI_V2, CRI_V3
from driverforge_node.runtime.backends.template import BASE, BEGIN, END, patched, undone
from driverforge_node.runtime.formats.values import lookup
from driverforge_node.runtime.model import RUNC, WantedHandlers
from driverforge_node.runtime.nvidia_handlers import nvidia_handlers

WANTED = WantedHandlers(handlers=nvidia_handlers("/t")[:2])
NAME = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl"


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
        (
            b"  [plugins.'x'.containerd.runtimes.\"nvidia\"]\n",
            WANTED,
            "has runtimes of these names already: nvidia",
        ),
        (
            b'[plugins."x".containerd.runtimes.nvidia-cdi]\n',
            WANTED,
            "has runtimes of these names already: nvidia-cdi",
        ),
    ],
)
def test_what_has_no_correct_result_is_refused(
    before: bytes | None, wanted: WantedHandlers, says: str
) -> None:
    with pytest.raises(Unsupported, match=says) as caught:
        patched(before, NAME, wanted, version=3)
    assert caught.value.resolution


def test_a_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        patched(b"\xff", NAME, WANTED, version=3)


def test_one_that_somebody_removed_stays_away() -> None:
    assert undone(NAME, original=b"x", written=b"y", current=None).data is None
