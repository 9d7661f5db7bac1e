"""What a command line and an environment say of options.

`driverctl runtime` reads some of the toolkit's, and goes without the value of all (`settings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driverforge_core.errors import Unsupported
from driverforge_toolkit.toolkit.options import Option

TRUE = ("1", "t", "T", "TRUE", "true", "True")  # as Go's strconv.ParseBool
FALSE = ("0", "f", "F", "FALSE", "false", "False")
LONGEST = 900  # seconds; the node takes a change that needs longer for one that hangs
# Options of which a variable of one runtime counts for that runtime only: a path of containerd's is none of
# docker's, and the last four are refused or mean something for one runtime alone. Upstream lets all variables
# of the other options count (CONTAINERD_RESTART_MODE with docker), and so does this.
OWNED = ("config", "socket", "use_legacy_config", "hooks_dir", "hook_filename", "config_mode")
# beginnings of variables that belong to one runtime
OWNERS = {
    "CONTAINERD": "containerd",
    "DOCKER": "docker",
    "CRIO": "crio",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionReading:
    """What flags and an environment say: the values of options by their names, and what is wrong with them.

    `origins` are as those of ToolkitSettings; `problems` has a sentence for each bad value.
    """

    values: dict[str, Any]
    origins: dict[str, str]
    problems: list[str]


def read_options(
    options: Iterable[Option],
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    flag_names: Mapping[str, str] | None = None,
) -> OptionReading:
    """The values of `options`.

    `flag_names` are the flags' names of a command that calls them otherwise than the table.
    """
    runtime = flags.get("runtime") or environ.get("RUNTIME", "")
    read = OptionReading(values={}, origins={}, problems=[])
    for option in options:
        text, origin = _text(option, flags, environ, runtime)
        if origin and option.name in flags:
            origin = (flag_names or {}).get(option.name, origin)
        read.origins[option.name] = origin
        read.values[option.name] = _value(option, text, origin, read.problems)
    if not read.origins["enable_cdi_in_runtime"]:
        read.values["enable_cdi_in_runtime"] = read.values["cdi_enabled"]
    return read


def _text(
    option: Option, flags: Mapping[str, str], environ: Mapping[str, str], runtime: str
) -> tuple[str, str]:
    """What is said of an option, and where; '' where the default stands."""
    said = [(option.flags[0], flags[option.name])] if option.name in flags else []
    said += [
        (name, environ[name].strip())
        for name in option.variables
        if name in environ and (option.name not in OWNED or _counts(name, runtime))
    ]
    for origin, text in said:
        if text or option.empty:
            return text, origin
    return option.default, ""


def _counts(variable: str, runtime: str) -> bool:
    """Whether a variable of an option that is OWNED counts; containerd's do where no runtime is named."""
    owner = OWNERS.get(variable.partition("_")[0], "")
    return owner in ("", runtime) or (not runtime and owner == "containerd")


def _value(
    option: Option, text: str, origin: str, problems: list[str]
) -> bool | str | float | tuple[str, ...]:
    if option.kind == "list":
        return tuple(filter(None, (word.strip() for word in text.split(","))))
    if option.kind == "bool":
        if text and text not in TRUE + FALSE:
            problems.append(f"{origin}={text!r}: write true or false")
        return text in TRUE
    if option.kind == "seconds":
        return _seconds(text, origin, problems)
    if text and option.allowed and text not in option.allowed:
        problems.append(f"{origin}={text!r}: write one of {', '.join(option.allowed)}")
    return text


def _seconds(text: str, origin: str, problems: list[str]) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        value = -1.0
    if text and not 0 < value < LONGEST:
        problems.append(f"{origin}={text!r}: write a number of seconds, more than 0 and less than {LONGEST}")
    return value


def nri_is_refused() -> Unsupported:
    return Unsupported(
        "NRI mode (--enable-nri-plugin, ENABLE_NRI_PLUGIN) is not part of this release",
        resolution="unset it to have the runtime's configuration changed, or use NVIDIA's image on this "
        "node; nothing was changed",
    )
