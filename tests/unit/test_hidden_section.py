"""What a containerd 1.x does not see of its earlier files, and the text that brings it back.

tests/engine/test_advice_runtime.py appends it to the files of real daemons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from driverforge_toolkit.runtime.backends.hidden_section import Missing, deciding_file, having, missing_in
from driverforge_toolkit.runtime.formats.tomledit import parse
from support.samples.templates import BASE, CRI

SPIN = f'[{CRI}.containerd.runtimes.spin]\nruntime_type = "io.containerd.spin.v2"\n'
SECTION = ("plugins", "io.containerd.grpc.v1.cri")


def documents(texts: Mapping[str, str]) -> dict[str, dict[str, object]]:
    return {path: parse(text.encode(), path) for path, text in texts.items()}


def missing(texts: Mapping[str, str], runtime: str = "runc") -> Missing | None:
    return missing_in(documents(texts), texts, runtime)


def section(text: str) -> Any:
    return parse(text.encode(), "x")["plugins"]["io.containerd.grpc.v1.cri"]  # type: ignore[index]


def test_the_last_file_with_a_section_decides() -> None:
    texts = {"/a": BASE, "/b": SPIN, "/c": "version = 2\n"}
    assert deciding_file(documents(texts)) == "/b"
    assert deciding_file(documents({"/c": "version = 2\n"})) == ""


def test_all_of_the_earlier_files_that_the_last_one_hides_comes_back() -> None:
    kata = SPIN.replace("spin", "kata")
    found = missing({"/a": BASE, "/b": kata, "/c": SPIN})
    assert found is not None
    assert (found.path, found.hidden) == ("/c", ())
    assert section(f"{SPIN}\n{found.text}") == {
        **section(BASE),
        "containerd": {"runtimes": section(f"{BASE}{kata}{SPIN}")["containerd"]["runtimes"]},
    }


def test_a_key_of_a_table_that_the_last_file_has_cannot_be_appended() -> None:
    texts = {"/a": BASE, "/b": f"[{CRI}]\nenable_selinux = true\n{SPIN}"}
    found = missing(texts)
    assert found is not None
    assert found.hidden == ((*SECTION, "sandbox_image"),)
    assert "sandbox_image" not in found.text
    assert section(f"{texts['/b']}\n{found.text}")["registry"] == section(BASE)["registry"]


def test_what_the_last_file_says_itself_stays() -> None:
    own = f'[{CRI}.containerd.runtimes.runc]\nruntime_type = "own"\n{SPIN}'
    found = missing({"/a": BASE, "/b": own})
    assert found is not None
    assert "runtimes" not in found.text


@pytest.mark.parametrize(
    ("stated", "cgroup"), [("true", {"SystemdCgroup": True}), ("false", None), ("", None)]
)
def test_a_runtime_that_nobody_states_takes_after_the_others(stated: str, cgroup: object) -> None:
    options = f"[{CRI}.containerd.runtimes.spin.options]\nsystemdCgroup = {stated}\n" if stated else ""
    found = missing({"/a": f"version = 2\n{SPIN}{options}"})
    assert found is not None
    runc = section(found.text)["containerd"]["runtimes"]["runc"]
    assert runc["runtime_type"] == "io.containerd.runc.v2"
    assert runc.get("options") == cgroup


def test_others_that_do_not_agree_say_nothing() -> None:
    options = "".join(
        f"[{CRI}.containerd.runtimes.r{value}.options]\nSystemdCgroup = {value}\n"
        for value in ("true", "false")
    )
    found = missing({"/a": options})
    assert found is not None
    assert "SystemdCgroup" not in found.text


def test_what_cannot_be_appended_is_left_to_people() -> None:
    assert missing({"/a": BASE, "/b": f"[{CRI}]\ncontainerd = {{runtimes = {{spin = {{}}}}}}\n"}) is None


def test_the_commands() -> None:
    found = Missing(path="/etc/a b.toml", text="[x]\ny = 'z'\n")
    printed = """'[x]' 'y = '"'"'z'"'"''"""
    assert found.command() == f"printf '%s\\n' '' {printed} >> '/etc/a b.toml'"
    assert found.command("/t") == f"printf '%s\\n' '' {printed} >> /t"
    assert found.command_for_new("/t") == f"printf '%s\\n' 'version = 2' {printed} > /t"


def test_the_files_that_have_a_runtime() -> None:
    known = documents({"/a": BASE, "/b": SPIN, "/c": BASE})
    assert having(known, "runc") == ("/a", "/c")
    assert having(known, "runc", besides=("/a",)) == ("/c",)
