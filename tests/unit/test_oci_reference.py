"""Image references as docker reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import InputError
from driverforge_oci.reference import Reference

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("debian", "docker.io", "library/debian", "", ""),
        ("debian:bookworm-slim", "docker.io", "library/debian", "bookworm-slim", ""),
        ("moby/buildkit:latest", "docker.io", "moby/buildkit", "latest", ""),
        ("docker.io/debian", "docker.io", "library/debian", "", ""),
        (
            "nvcr.io/nvidia/driver:550.90.07-ubuntu22.04",
            "nvcr.io",
            "nvidia/driver",
            "550.90.07-ubuntu22.04",
            "",
        ),
        ("localhost/driver:1", "localhost", "driver", "1", ""),
        ("127.0.0.1:5000/driver:1", "127.0.0.1:5000", "driver", "1", ""),
        ("registry:5000/a/b/c", "registry:5000", "a/b/c", "", ""),
        ("[::1]:5000/driver:1", "[::1]:5000", "driver", "1", ""),
        (f"registry.site/driver@{DIGEST}", "registry.site", "driver", "", DIGEST),
        (f"registry.site:443/driver:tag@{DIGEST}", "registry.site:443", "driver", "tag", DIGEST),
    ],
)
def test_references_as_people_write_them(
    text: str, host: str, repository: str, tag: str, digest: str
) -> None:
    assert Reference.parse(text) == Reference(host=host, repository=repository, tag=tag, digest=digest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:",
        "a@",
        "registry.site/",
        "registry.site/A",
        "a//b",
        "a:b:c",
        "a@sha256:12",
        "a b",
        "a:b\n",
        "https://registry.site/a",
        "-x/a",
    ],
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(InputError):
        Reference.parse(text)


def test_a_repository_alone_names_no_image() -> None:
    repository = Reference.parse("registry.site/driver")
    with pytest.raises(InputError, match="names no image"):
        _ = repository.target
    assert repository.with_tag("1").target == "1"
    assert repository.with_tag("1").with_digest(DIGEST).target == DIGEST


hosts = st.sampled_from(
    ["docker.io", "nvcr.io", "localhost", "127.0.0.1:5000", "registry.site:443", "[::1]:5000"]
)
names = st.from_regex(r"[a-z0-9]{1,5}([._-][a-z0-9]{1,3})?(/[a-z0-9]{1,4}){1,2}", fullmatch=True)
tags = st.from_regex(r"(|[A-Za-z0-9_][A-Za-z0-9._-]{0,12})", fullmatch=True)


@given(hosts, names, tags, st.sampled_from(["", DIGEST]))
def test_references_round_trip(host: str, name: str, tag: str, digest: str) -> None:
    reference = Reference(host=host, repository=name, tag=tag, digest=digest)
    assert Reference.parse(str(reference)) == reference
