"""`driverctl cdi` and files that nobody meant for it: odd names, tags and aliases, FIFOs, devices."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from driverctl.cli import run
from driverforge_core.errors import InputError, StorageFailed
from driverforge_host.adapters.real import real_host
from driverforge_toolkit.cdi import specfiles
from driverforge_toolkit.cdi.spec import ContainerEdits, Spec, SpecMount

SPEC = """cdiVersion: 0.5.0
kind: example.com/device
devices:
- name: a
  containerEdits:
    mounts:
    - {hostPath: "%s", containerPath: /x}
"""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


def cdi(*words: str) -> int:
    return run(["cdi", *words], real_host)


@pytest.mark.parametrize(
    "value",
    ["!!bool x", "!!int ''", "!!float ''", "!!timestamp x", "!!binary 'é'", "!!set [a]", "!!omap {a: b}"],
)
def test_a_value_that_is_not_what_its_tag_says_is_told(value: str) -> None:
    with pytest.raises(InputError, match=r"cannot be read|is not a CDI spec"):
        specfiles.read(f"kind: {value}\n", "x.yaml")


@pytest.mark.parametrize("text", [BOMB + "kind: *h\n", MERGES + "kind: *h\n"], ids=["lists", "merge keys"])
def test_aliases_of_aliases_are_refused_before_they_are_expanded(text: str) -> None:
    with pytest.raises(InputError) as caught:
        specfiles.read(text, "x.yaml")
    assert "aliases" in caught.value.details[0]


def test_a_spec_with_anchors_and_a_value_that_holds_itself_are_read() -> None:
    text = SPEC % "/a" + "- {name: b, containerEdits: &e {env: [A=1]}}\n- {name: c, containerEdits: *e}\n"
    assert specfiles.read(text, "x.yaml").devices[2].edits.env == ("A=1",)
    with pytest.raises(InputError, match="is not a CDI spec"):
        specfiles.read("&a {kind: *a, devices: [*a], containerEdits: *a}\n", "x.yaml")


@pytest.mark.parametrize("name", ["a\\0b", "a\\ud800b"], ids=["zero byte", "half a character"])
def test_a_path_that_no_file_can_have_is_a_problem_of_the_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(SPEC % f"/{name}")
    assert cdi("verify", str(tmp_path / "x.yaml")) == 1
    assert "mounts[0].hostPath" in capsys.readouterr().out


def test_a_huge_file_is_not_parsed() -> None:
    with pytest.raises(InputError) as caught:
        specfiles.read("#" * (specfiles.MAX_BYTES + 1), "x.yaml")
    assert "no spec is that large" in caught.value.details[0]


def test_one_bad_file_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("kind: !!bool x\n")
    os.mkfifo(tmp_path / "b.yaml")
    (tmp_path / "c.yaml").symlink_to("c.yaml")
    (tmp_path / "d.yaml").write_text(SPEC % "/etc")
    assert cdi("list", "--spec-dir", str(tmp_path)) == 0
    shown = capsys.readouterr()
    assert shown.out == f"example.com/device=a\t{tmp_path}/d.yaml\n"
    assert f"{tmp_path}/b.yaml: {tmp_path}/b.yaml is not a regular file, it is a FIFO" in shown.err


def test_relative_paths_are_those_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x.yaml").write_text(SPEC % "/etc")
    monkeypatch.chdir(tmp_path)
    assert cdi("transform", "--input", "in/x.yaml", "--output", "out/y.yaml") == 0
    assert specfiles.read((tmp_path / "out/y.yaml").read_text(), "y.yaml").kind == "example.com/device"
    capsys.readouterr()
    assert cdi("verify", "--spec-dir", "in") == 0
    assert capsys.readouterr().out == "1 spec file agrees with the node\n"


def test_a_new_file_takes_the_place_of_files_only(tmp_path: Path) -> None:
    """`--output /dev/null` must not leave a file there."""
    (tmp_path / "x.yaml").write_text(SPEC % "/etc")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link"):
        with pytest.raises(StorageFailed, match="is not a regular file"):
            cdi("transform", "--input", str(tmp_path / "x.yaml"), "--output", str(tmp_path / name))
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "link", "x.yaml"]


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_has_two_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text(SPEC % "/etc")
    assert cdi("transform", "--input", str(tmp_path / "x.yaml"), "--output", name) == 0
    assert "kind: example.com/device" in capsys.readouterr().out


@pytest.mark.parametrize("form", specfiles.SpecFormat)
def test_a_name_that_is_no_text_stops_the_writing_of_a_spec_with_its_place(
    form: specfiles.SpecFormat,
) -> None:
    # Python's name for a file that is called by the byte 0xff
    mount = SpecMount(host_path="/dev/\udcff", container_path="/x")
    with pytest.raises(InputError, match="not UTF-8") as caught:
        specfiles.write(
            Spec(version="", kind="example.com/device", devices=(), edits=ContainerEdits(mounts=(mount,))),
            form,
        )
    assert "udcff" in caught.value.details[0]
