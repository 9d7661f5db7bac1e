"""A configuration file as a value: parsed once, wherever it is handed on to."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.backends import config_files, containerd, crio, docker
from driverforge_toolkit.runtime.formats import tomledit
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, data_of, toml_file, values_of
from driverforge_toolkit.runtime.formats.values import Change, KeyPath
from driverforge_toolkit.runtime.model import Backend, RuntimeKind, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from support.fakes.fakehost import fake_node
from support.fakes.runtimemodel import as_files, daemon, effective

FILE = "/etc/containerd/config.toml"
WANTED = WantedHandlers(handlers=nvidia_handlers("/t"), default="nvidia")
BACKENDS: dict[RuntimeKind, Backend] = {"containerd": containerd, "crio": crio, "docker": docker}
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'


@dataclass
class Counting:
    """TOML, with a count of the parses by path."""

    parses: Counter[str] = field(default_factory=Counter)

    def parse(self, data: bytes, name: str, /) -> dict[str, object]:
        self.parses[name] += 1
        return tomledit.parse(data, name)

    def edited(
        self,
        data: bytes,
        values: Mapping[str, object],
        changes: Sequence[Change],
        name: str,
        /,
        *,
        keep: Mapping[str, object],
    ) -> tuple[bytes, dict[str, object]]:
        return tomledit.edited(data, values, changes, name, keep=keep)


def test_a_file_is_parsed_once_and_what_an_edit_makes_of_it_not_again() -> None:
    counting = Counting()
    file = ConfigFile(path=FILE, data=b"version = 2 # mine\n", format=counting)
    assert counting.parses[FILE] == 0
    assert file.values is file.values
    more = file.edited([Change(path=("oom_score",), value=-1)])
    assert more.data == b"version = 2 # mine\noom_score = -1\n"
    assert more.values == {"version": 2, "oom_score": -1}
    assert file.values == {"version": 2}
    assert counting.parses[FILE] == 1


def test_the_same_bytes_are_the_same_file() -> None:
    file = toml_file(FILE, b"version = 2\n")
    assert file.with_data(b"version = 2\n") is file
    assert file.edited([]) is file
    assert file.with_data(None) == toml_file(FILE)
    assert file.with_data(None) != file


def test_a_file_that_is_not_there_says_nothing() -> None:
    assert toml_file(FILE).values == {}
    assert values_of({}, FILE) == {}
    assert data_of({}, FILE) is None


def test_a_broken_file_is_told_to_everybody_who_asks() -> None:
    file = toml_file(FILE, b"version = \n")
    for _ in range(2):
        with pytest.raises(InputError, match=FILE):
            _ = file.values


@pytest.mark.parametrize("version", [(1, 7, 24), (2, 1, 9)])
def test_a_change_of_containerds_files_parses_each_of_them_once(version: tuple[int, ...]) -> None:
    where, counting = daemon(version=version), Counting()
    site = "/etc/containerd/conf.d/10-site.toml"
    texts = {
        where.config: b'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
        site: f'version = 2\n[{CRI2}]\nsandbox_image = "x"\n'.encode(),
        where.drop_in: b"version = 2\n",
    }
    files = {path: ConfigFile(path=path, data=data, format=counting) for path, data in texts.items()}
    placed = containerd.placed(where, files)
    containerd.patched(placed, files, effective(where, texts), WANTED)
    assert counting.parses == dict.fromkeys(texts, 1)


def tables(values: Mapping[str, object], above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """A document's tables by their paths."""
    yield above, values
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from tables(value, (*above, key))


@pytest.mark.parametrize(
    ("kind", "root", "drop_in"),
    [
        (
            "containerd",
            f'version = 2\n[{CRI2}.containerd.runtimes.crun]\nruntime_type = "c"\n',
            "version = 2\n",
        ),
        ("crio", '[crio.runtime.runtimes.crun]\nruntime_path = "/c"\n', "[crio.runtime]\npids_limit = 9\n"),
        ("crio", "", '[crio.runtime.runtimes.crun]\nruntime_path = "/c"\n'),
        ("docker", '{"runtimes": {"crun": {"path": "/c"}}}', ""),
    ],
)
def test_no_backend_writes_into_what_a_file_says(kind: RuntimeKind, root: str, drop_in: str) -> None:
    where = daemon(kind)
    texts = {path: text.encode() for path, text in ((where.config, root), (where.drop_in, drop_in)) if text}
    files = as_files(texts)
    before = {path: dict(tables(file.values)) for path, file in files.items()}
    said = {path: copy.deepcopy(file.values) for path, file in files.items()}
    backend = BACKENDS[kind]
    release = replace(WANTED, default="", release_default=True)
    for wanted in (WANTED, release):
        after = backend.patched(where, files, effective(where, texts), wanted)
        backend.stripped(where, files, wanted.names)
        for file in files.values():
            backend.undone(file, original=None, written=after[file.path].data if file.path in after else None)
    for path, file in files.items():
        now = dict(tables(file.values))
        assert [at for at in now if now[at] is not before[path].get(at)] == []
        assert file.values == said[path]


def test_a_file_that_was_read_before_is_handed_on_for_as_long_as_it_is_the_same(tmp_path: Path) -> None:
    made = fake_node(tmp_path, gpu=False)
    where, node = daemon(), made.host.node
    node.make_dirs("/etc/containerd")
    node.write_atomic(where.config, b"version = 2\n")
    before = config_files.read_files(made.host, where)
    again = config_files.read_files(made.host, where, known=before)
    assert again[where.config] is before[where.config]
    node.write_atomic(where.config, b"version = 3\n")
    changed = config_files.read_files(made.host, where, known=before)
    assert changed[where.config].values == {"version": 3}
