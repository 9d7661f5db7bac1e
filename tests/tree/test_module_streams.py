"""modules.yaml of an RPM repository: which packages it hides, and what one may send that no module has."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from driverforge_build.discover.rpm.streams import DEPTH, hidden_packages
from driverforge_core.errors import InputError


def module(name: str, stream: str, *packages: str) -> str:
    listed = "".join(f"\n      - {package}" for package in packages)
    return (
        f"---\ndocument: modulemd\nversion: 2\ndata:\n  name: {name}\n  stream: {stream}\n"
        f"  license: {{module: [MIT]}}\n  artifacts:\n    rpms:{listed or ' []'}\n"
    )


def default(name: str, stream: str) -> str:
    return f"---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: {name}\n  stream: {stream}\n"


def hidden(folder: Path, text: str | bytes) -> frozenset[str]:
    path = folder / "modules.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return hidden_packages(path, "")


def test_what_no_default_stream_has_is_hidden(tmp_path: Path) -> None:
    text = module("perl", "5.30", "perl-4:5.30-1.x86_64", "both-0:1-1.noarch") + default("perl", '"5.32"')
    text += module("perl", "5.32", "perl-4:5.32-1.x86_64", "both-0:1-1.noarch") + module("empty", "1")
    text += "---\ndocument: modulemd-translations\ndata: {module: perl, stream: 5.30}\n"
    assert hidden(tmp_path, text) == {"perl-4:5.30-1.x86_64"}
    assert hidden(tmp_path, "") == frozenset()


def test_a_stream_is_a_text(tmp_path: Path) -> None:
    """As numbers 3.10 and 3.1 are one."""
    text = module("python", "3.1", "old-1-1.noarch") + module("python", "3.10", "new-1-1.noarch")
    assert hidden(tmp_path, text + default("python", "3.10")) == {"old-1-1.noarch"}


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 200_000,
        "- " * 200_000,
        "a: &a {x: 1}\nb: {<<: [*a, *a]}",
        "? [a, b]\n: c",
        "document: modulemd\ndata: {name: a}",
        "document: modulemd\ndata: {name: a, stream: 1, stream: 2}",
        "document: modulemd\ndata: {name: [a, b], stream: 1}",
        "document: modulemd-defaults\ndata: {stream: 1}",
        "a: [",
        b"a: \xff",
    ],
)
def test_no_file_ends_the_program(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(InputError, match="cannot read the module streams"):
        hidden(tmp_path, text)


@pytest.mark.parametrize("stream", ["2024-99-99", "9" * 5000, "0001-01-01T00:00:00+23:59"])
def test_what_yaml_takes_for_a_number_or_a_date_is_a_text_too(tmp_path: Path, stream: str) -> None:
    assert hidden(tmp_path, module("a", stream, "a-1-1.noarch")) == {"a-1-1.noarch"}


def test_depth_ends_where_it_says(tmp_path: Path) -> None:
    assert hidden(tmp_path, "[" * DEPTH + "]" * DEPTH) == frozenset()
    with pytest.raises(InputError, match="nests deeper"):
        hidden(tmp_path, "[" * (DEPTH + 1) + "]" * (DEPTH + 1))


def test_a_file_that_unpacks_to_more_than_any_is_left(tmp_path: Path) -> None:
    path = tmp_path / "modules.yaml.gz"
    path.write_bytes(gzip.compress(b"#" * 100))
    assert hidden_packages(path, ".gz", limit=100) == frozenset()
    with pytest.raises(InputError, match="unpacks to more than 99 bytes"):
        hidden_packages(path, ".gz", limit=99)
