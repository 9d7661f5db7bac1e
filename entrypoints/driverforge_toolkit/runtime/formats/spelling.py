"""Options of a runtime in any case of their letters, as containerd takes them.

A runtime's options are a free table: containerd keeps it as it is written, shows it so in its dump and in its
status, and brings it into the shim's structure when a pod starts. What counts is decided there, by Go's TOML
library, so that both spellings of a pair are seen and only one works. kubespray has systemdCgroup and
binaryName, and a tool that adds BinaryName beside these makes such a pair.

Measured with pods on containerd 1.6.20, 1.7.24 and 2.1.9:

- containerd 2 (go-toml v2) takes a name in any case. Of several the last in the order of the bytes counts,
  since containerd sorts them: binaryName before BinaryName.
- containerd 1 (go-toml v1) tries four spellings, in the order of `_tried`, and knows no others.
"""

from __future__ import annotations

from collections.abc import Mapping

PROGRAM = "BinaryName"  # the field with a handler's program
# the shims' structures: containerd's api/types/runc/options and pkg/runtimeoptions
_FIELDS = {
    name.lower(): name
    for name in (
        PROGRAM,
        "ConfigBody",
        "ConfigPath",
        "CriuImagePath",
        "CriuPath",
        "CriuWorkPath",
        "IoGid",
        "IoUid",
        "NoNewKeyring",
        "NoPivotRoot",
        "Root",
        "ShimCgroup",
        "SystemdCgroup",
        "TypeUrl",
    )
}


def takes_any_case(version: tuple[int, ...]) -> bool:
    """Whether a containerd of that version takes any case. Without a version it is taken for a later one."""
    return not version or version >= (2,)


def counting(options: Mapping[str, object], field: str, *, any_case: bool) -> str:
    """The key of `options` that gives the field its value, '' where none does."""
    if any_case:
        return max(spellings(options, field), default="")
    return next((key for key in _tried(field) if key in options), "")


def _tried(field: str) -> tuple[str, ...]:
    return field, field.lower(), field.upper(), field[:1].lower() + field[1:]


def spellings(options: Mapping[str, object], field: str) -> list[str]:
    """All keys of `options` that are the field's name in some case, whether they count or not."""
    return [key for key in options if key.lower() == field.lower()]


def settled(options: Mapping[str, object], *, any_case: bool) -> dict[str, object]:
    """The options, each once: under its field's name, with the value that counts."""
    found: dict[str, object] = {}
    for key in options:
        field = _FIELDS.get(key.lower(), key)
        if counts := counting(options, field, any_case=any_case):
            found[field] = options[counts]
    return found


def respelled(options: Mapping[str, object], there: Mapping[str, object]) -> dict[str, object]:
    """Settled options in every spelling that `there` has of them.

    For a table that is merged over `there` key by key: what is left there under another spelling may count
    instead.
    """
    return {key: value for field, value in options.items() for key in spellings(there, field) or [field]}
