"""Values that no option or variable should have: each is one error before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest

from driverforge_core.errors import DriverforgeError, InputError, UsageError
from driverforge_toolkit.runtime.request import wanted_handlers
from driverforge_toolkit.toolkit.options import OPTIONS
from driverforge_toolkit.toolkit.settings import settings_of

ODD = (
    "",
    "x",
    "\u00b2",
    "-1",
    "0",
    "9" * 30,
    "9" * 5000,
    "a\nb",
    "\udcff",
    "../x",
    "[" * 100_000,
    '{"a": null}',
    "a,b,,c",
    "\0",
)


@pytest.mark.parametrize("variable", [name for option in OPTIONS for name in option.variables])
def test_whatever_a_variable_says_is_a_value_or_one_error(variable: str) -> None:
    owner = {"DOCKER": "docker", "CRIO": "crio"}.get(variable.partition("_")[0], "containerd")
    for text in ODD:
        with suppress(DriverforgeError):
            assert int(settings_of({}, {"RUNTIME": owner, variable: text}).watch_interval) > 0


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("TOOLKIT_WATCH_INTERVAL", "\u00b2", "write a number of seconds"),
        ("TOOLKIT_WATCH_INTERVAL", "99999999999999999999", "write a number of seconds"),
        ("CDI_OUTPUT_DIR", "var/run/cdi", "write an absolute path"),
        ("NVIDIA_DEV_ROOT", "dev", "write an absolute path"),
        ("RUNTIME_CONFIG", "config.toml", "write an absolute path"),
        ("RUNTIME_SOCKET", "unix:///run/containerd/containerd.sock", "write an absolute path"),
        ("CRIO_HOOK_FILENAME", "../../x.json", "without its folder"),
    ],
)
def test_a_value_that_would_lead_elsewhere_is_refused(variable: str, text: str, told: str) -> None:
    environ: Mapping[str, str] = {
        "RUNTIME": "crio" if variable.startswith("CRIO") else "containerd",
        variable: text,
    }
    with pytest.raises(InputError) as caught:
        settings_of({}, environ)
    assert told in caught.value.details[0]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a": null}',
        '{"options": {"a": [1, null]}}',
        '{"a": 1e999}',
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        '{"a": 99999999999999999999}',
        '{"runtime_type": "\\ud800"}',
        '{"a": ' + "[" * 30 + "]" * 30 + "}",
        "\udcff",
    ],
)
def test_an_override_that_no_file_can_have_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="RUNTIME_CONFIG_OVERRIDE"):
        wanted_handlers(override=text)


@pytest.mark.parametrize("name", ["", "a b", "a\n", "\udcff", "a/b", " a", "\x1b[1m"])
def test_a_handler_has_a_name_that_can_be_written(name: str) -> None:
    with pytest.raises(UsageError, match="is not a name"):
        wanted_handlers(name=name)
