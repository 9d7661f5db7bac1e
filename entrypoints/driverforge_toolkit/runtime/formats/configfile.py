"""A configuration file as a value: its bytes, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from driverforge_toolkit.runtime.formats import jsonedit, tomledit
from driverforge_toolkit.runtime.formats.values import Change, changes_between


class Format(Protocol):
    """How files of a kind are read and edited: `tomledit` or `jsonedit`."""

    def parse(self, data: bytes, name: str, /) -> dict[str, object]: ...

    def edited(
        self,
        data: bytes,
        values: Mapping[str, object],
        changes: Sequence[Change],
        name: str,
        /,
        *,
        keep: Mapping[str, object],
    ) -> tuple[bytes, dict[str, object]]: ...


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A configuration file. `data` is None where there is no such file; then it says nothing.

    It is parsed when somebody asks what it says, and never again: the value is handed on, and that with it.
    """

    path: str
    data: bytes | None
    format: Format = field(compare=False, repr=False)

    @cached_property
    def values(self) -> Mapping[str, object]:
        """What it says. Shared by all who have the file, so that whoever changes it works on a copy.

        Raises InputError for a broken file.
        """
        return {} if self.data is None else self.format.parse(self.data, self.path)

    @property
    def text(self) -> str:
        """Its text for people: '' where it is not there, and a sign for each byte that is no UTF-8."""
        return (self.data or b"").decode("utf-8", "replace")

    def with_data(self, data: bytes | None) -> ConfigFile:
        """The file with these bytes; itself where it has them."""
        return self if data == self.data else replace(self, data=data)

    def edited(self, changes: Sequence[Change], *, keep: Mapping[str, object] | None = None) -> ConfigFile:
        """The file with the changes applied in order, and every other byte as it is.

        A table that a removal leaves empty goes too, unless the document `keep` has it. Raises InputError for
        a broken file, Unsupported where it cannot be edited without touching other keys.
        """
        if not changes:
            return self
        data, values = self.format.edited(self.data or b"", self.values, changes, self.path, keep=keep or {})
        made = replace(self, data=data)
        vars(made)["values"] = values  # the edit has read its own result: that is the parse of the new file
        return made

    def rewritten(self, meant: Mapping[str, object]) -> ConfigFile:
        """The file with the values `meant`, and as much of its text as can stay. Raises as `edited`."""
        return self.edited(changes_between(self.values, meant), keep=meant)


def toml_file(path: str, data: bytes | None = None) -> ConfigFile:
    return ConfigFile(path=path, data=data, format=tomledit)


def json_file(path: str, data: bytes | None = None) -> ConfigFile:
    return ConfigFile(path=path, data=data, format=jsonedit)


Contents = Mapping[str, ConfigFile]  # files by their paths; one that is missing here is not there


def data_of(files: Contents, path: str) -> bytes | None:
    """The bytes of a file, None where it is not there."""
    file = files.get(path)
    return None if file is None else file.data


def values_of(files: Contents, path: str) -> Mapping[str, object]:
    """What a file says, {} where it is not there. Raises as `ConfigFile.values`."""
    file = files.get(path)
    return {} if file is None else file.values
