"""config.toml: upstream's recorded rules (tests/cases/toolkit/toolkit-config), and what a person's changes
become.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tomllib
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.toolkit.config_toml import (
    CliSection,
    RuntimeSection,
    ToolkitConfig,
    config_of_table,
    default_config,
    host_ldconfig,
    laid_over,
    refused_values,
    render_config,
    table_of,
)
from support.fakes.fakefiles import FakeFiles, Fuse

CASES = Path(__file__).parents[1] / "cases/toolkit/toolkit-config"
FILE = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
# upstream's Go fields -> ours, where it is not the same name in another spelling
GO = {
    "AcceptDeviceListAsVolumeMounts": "accept_nvidia_visible_devices_as_volume_mounts",
    "AcceptEnvvarUnprivileged": "accept_nvidia_visible_devices_envvar_when_unprivileged",
    "NVIDIACTKConfig": "nvidia_ctk",
    "NVIDIAContainerCLIConfig": "nvidia_container_cli",
    "NVIDIAContainerRuntimeConfig": "nvidia_container_runtime",
    "NVIDIAContainerRuntimeHookConfig": "nvidia_container_runtime_hook",
    "DebugFilePath": "debug",
}
FEATURES = {
    "AllowCUDACompatLibsFromContainer": "allow-cuda-compat-libs-from-container",
    "AllowLDConfigFromContainer": "allow-ldconfig-from-container",
    "AllowUnknownOCISpecFields": "allow-unknown-oci-spec-fields",
    "DisableCUDACompatLibHook": "disable-cuda-compat-lib-hook",
    "DisableImexChannelCreation": "disable-imex-channel-creation",
    "IgnoreImexChannelRequests": "ignore-imex-channel-requests",
    "NoAdditionalGIDsForDeviceNodes": "no-additional-gids-for-device-nodes",
}
# upstream's tests replace the function that looks for ldconfig
BASE = replace(ToolkitConfig(), nvidia_container_cli=CliSection(ldconfig="@/test/ld/config/path"))


def cases(operation: str) -> list[Any]:
    found = [json.loads(path.read_text()) for path in sorted(CASES.glob("*.json"))]
    return [
        pytest.param(case, id=case["id"].rpartition("/")[2])
        for case in found
        if case["operation"] == operation
    ]


def from_go(value: Mapping[str, Any], like: Any) -> Any:
    """Our value of upstream's configuration structure."""
    ours = {item.name.replace("_", "").lower(): item.name for item in fields(like)}
    changes: dict[str, Any] = {}
    for key, given_ in value.items():
        name = GO.get(key) or ours[key.lower()]
        default = getattr(like, name)
        if name == "features":
            changes[name] = {FEATURES[flag]: word for flag, word in given_.items() if word is not None}
        elif is_dataclass(default):
            changes[name] = from_go(given_, default)
        else:
            changes[name] = tuple(given_ or ()) if isinstance(default, tuple) else given_
    return replace(like, **changes)


def test_all_recorded_cases_are_read_here() -> None:
    operations = [json.loads(path.read_text())["operation"] for path in CASES.glob("*.json")]
    assert {name: operations.count(name) for name in set(operations)} == {
        "AssertValid": 4,
        "ConfigFromToml": 4,
        "GetConfig": 6,
        "NormalizeLDConfigPath": 7,
    }


@pytest.mark.parametrize("case", cases("AssertValid"))
def test_what_upstream_finds_valid(case: dict[str, Any]) -> None:
    assert bool(refused_values(from_go(case["input"]["config"], ToolkitConfig()))) == bool(
        case["expected"]["expectedError"]
    )


@pytest.mark.parametrize("case", [*cases("ConfigFromToml"), *cases("GetConfig")])
def test_values_are_read_as_upstream_reads_them(case: dict[str, Any]) -> None:
    contents = case["input"]["contents"] or {}
    table = contents if isinstance(contents, dict) else tomllib.loads("\n".join(contents))
    user = default_config(case["input"].get("distIdsLike") or ()).nvidia_container_cli.user
    base = replace(BASE, nvidia_container_cli=replace(BASE.nvidia_container_cli, user=user))
    if case["expected"]["expectedError"]:
        with pytest.raises(InputError, match="NVIDIA's programs refuse"):
            config_of_table(table, FILE, base=base)
    else:
        assert config_of_table(table, FILE, base=base) == from_go(
            case["expected"]["expectedConfig"], ToolkitConfig()
        )


@pytest.mark.parametrize("case", cases("NormalizeLDConfigPath"))
def test_ldconfig_is_the_real_one_where_there_is_one(case: dict[str, Any], tmp_path: Path) -> None:
    files = FakeFiles({"/": tmp_path}, Fuse())
    files.make_dirs("/R/001")
    files.write_atomic("/R/001/exists.real", b"")
    given_, expected = (
        text.replace("@R@", "/R") for text in (case["input"]["ldconfig"], case["expected"]["expected"])
    )
    assert (host_ldconfig(files, given_) if given_ else "") == expected


def test_every_wrong_type_is_told_at_once() -> None:
    text = '[nvidia-container-cli]\nload-kmods = "yes"\nroot = 1\n'
    text += '[nvidia-container-runtime]\nruntimes = ["a", 1]\nmodes = []\n[features]\nx = 1\n'
    with pytest.raises(InputError) as caught:
        config_of_table(tomllib.loads(text), FILE)
    assert sorted(line.removeprefix(f"{FILE}: ") for line in caught.value.details) == [
        "features.x is not true or false",
        "nvidia-container-cli.load-kmods is not true or false",
        "nvidia-container-cli.root is not a text",
        "nvidia-container-runtime.modes is not a table",
        "nvidia-container-runtime.runtimes is not a list of texts",
    ]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


@given(TEXTS, st.lists(TEXTS, max_size=3), st.booleans(), st.dictionaries(TEXTS, st.booleans(), max_size=2))
def test_what_is_written_reads_back(
    word: str, words: list[str], flag: bool, features: dict[str, bool]
) -> None:
    config = replace(
        ToolkitConfig(),
        features=features,
        nvidia_container_cli=CliSection(
            ldconfig=f"@{word}", user=word, no_pivot=flag, environment=tuple(words)
        ),
        nvidia_container_runtime=RuntimeSection(runtimes=tuple(words), debug=word),
    )
    assert tomllib.loads(render_config(config).decode()) == table_of(config)
    assert config_of_table(parse(render_config(config), FILE), FILE) == config


OWNED = {("nvidia-container-cli", "root")}
FIRST = ToolkitConfig(nvidia_container_cli=CliSection(root="/run/nvidia/driver"))
SECOND = ToolkitConfig(
    nvidia_container_cli=CliSection(root="/"),
    nvidia_container_runtime=RuntimeSection(mode="cdi", runtimes=("crun",)),
    features={"new": True},
)


def test_a_file_that_nobody_touched_is_written_anew() -> None:
    assert laid_over(None, None, SECOND, OWNED, FILE).data == render_config(SECOND)
    assert laid_over(render_config(FIRST), render_config(FIRST), SECOND, OWNED, FILE).data == render_config(
        SECOND
    )
    assert laid_over(render_config(SECOND), render_config(SECOND), SECOND, OWNED, FILE).data == render_config(
        SECOND
    )


def edited() -> bytes:
    text = (
        render_config(FIRST)
        .decode()
        .replace('log-level = "info"', 'log-level = "debug" # till the bug is found')
    )
    text = text.replace('root = "/run/nvidia/driver"', 'root = "/mnt"').replace(
        '  mode = "auto"', '  # ours\n  mode = "legacy"'
    )
    return ("# site 7\n" + text + '\n[site]\nowner = "us"\n').encode()


def test_a_persons_changes_stay_but_for_what_the_settings_decide() -> None:
    result = laid_over(edited(), render_config(FIRST), FIRST, OWNED, FILE)
    values = parse(result.data, FILE)
    config = config_of_table(values, FILE)
    assert (config.nvidia_container_cli.root, config.nvidia_container_runtime.log_level) == (
        "/run/nvidia/driver",
        "debug",
    )
    assert config.nvidia_container_runtime.mode == "legacy"
    assert values["site"] == {"owner": "us"}
    assert b"# site 7" in result.data
    assert b"# till the bug is found" in result.data
    assert {".".join(path) for path in result.kept} == {
        "nvidia-container-runtime.log-level",
        "nvidia-container-runtime.mode",
    }
    again = laid_over(result.data, render_config(FIRST), FIRST, OWNED, FILE)
    assert again.data == result.data, "a second time changes nothing"


def test_a_change_of_our_own_mind_is_made_in_the_edited_file() -> None:
    result = laid_over(edited(), render_config(FIRST), SECOND, OWNED, FILE)
    config = config_of_table(parse(result.data, FILE), FILE)
    assert (config.nvidia_container_runtime.mode, config.nvidia_container_runtime.runtimes) == (
        "cdi",
        ("crun",),
    )
    assert config.nvidia_container_runtime.log_level == "debug"
    back = laid_over(result.data, render_config(SECOND), FIRST, OWNED, FILE)
    assert config_of_table(parse(back.data, FILE), FILE).features == {}, "what only we had written goes again"


def test_a_file_of_nvidias_installer_gets_our_values_and_keeps_comments_and_foreign_keys() -> None:
    result = laid_over(edited(), None, SECOND, OWNED, FILE)
    values = parse(result.data, FILE)
    assert config_of_table(values, FILE) == SECOND
    assert values["site"] == {"owner": "us"}
    assert b"# ours" in result.data


@pytest.mark.parametrize(
    "text", [b"a = \n", b"\xff\n", b'[nvidia-container-cli]\nldconfig = "@/x"\nload-kmods = 1\n']
)
def test_a_broken_file_is_refused(text: bytes) -> None:
    last = b"[nvidia-container-cli]\nload-kmods = true\n"
    with pytest.raises(InputError):
        laid_over(text, last, replace(FIRST, nvidia_container_cli=CliSection(root="/x")), OWNED, FILE)
