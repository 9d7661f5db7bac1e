"""Which failures of an engine are worth another attempt; the messages were reported by users of docker."""

from __future__ import annotations

import pytest

from driverforge_build.engine.passing import passes, passing_reason

HEAD = 'failed to do request: Head "https://registry-1.docker.io/v2/library/debian/manifests/bookworm"'
BLOB = "https://registry-1.docker.io/v2/library/golang/blobs/sha256:d94"
METADATA = "failed to resolve source metadata for docker.io/library/debian:bookworm"

PASSING = [
    # alpinelinux/docker-alpine#439
    f"{METADATA}: failed to copy: unexpected status code {BLOB}: 500 Internal Server Error",
    # drawdb-io/drawdb#293
    f"{METADATA}: {HEAD}: read tcp 192.168.127.130:44148->150.136.252.237: read: connection reset by peer",
    # IQSS/dataverse#11239
    f"DeadlineExceeded: {METADATA}: {HEAD}: dial tcp: lookup registry-1.docker.io: i/o timeout",
    # moby/buildkit#1972
    "failed to create LLB definition: unexpected status code [manifests latest]: 503 Service Unavailable",
    f"{METADATA}: {HEAD}: net/http: TLS handshake timeout",
    "failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF",
    # ADD of NVIDIA's archive: moby/buildkit, source/http/source.go
    "failed to load cache key: invalid response status 503",
    "failed to load cache key: invalid response status 429",
]
LASTING = [
    "failed to read dockerfile: open Dockerfile: no such file or directory",
    f"{METADATA}: docker.io/library/debian:bookworn: not found",
    f"{METADATA}: unexpected status from HEAD request: 401 Unauthorized",
    "failed to compute cache key: checksum mismatch sha256:00 != sha256:11",
    "failed to solve: no space left on device",
    "failed to load cache key: invalid response status 404",
    "failed to load cache key: invalid response status 403",
]


def failed_step(status: int, *said: str) -> list[str]:
    """What BuildKit says of a RUN that failed."""
    process = f'process "/bin/sh -c driverctl build" did not complete successfully: exit code: {status}'
    return [
        *(f"#12 5.1 {line}" for line in said),
        f"#12 ERROR: {process}",
        "------",
        " > [jit 3/4] RUN driverctl build:",
        *said,
        "------",
        f"ERROR: failed to solve: {process}",
    ]


@pytest.mark.parametrize("message", PASSING)
def test_a_network_or_a_busy_registry_passes(message: str) -> None:
    line = f"ERROR: failed to solve: {message}"
    assert passing_reason(["#3 [internal] load metadata", line]) == line


@pytest.mark.parametrize("message", LASTING)
def test_what_would_come_again_does_not(message: str) -> None:
    assert passing_reason([f"ERROR: failed to solve: {message}"]) == ""


@pytest.mark.parametrize("status", [1, 2, 70, 100, 137])
def test_a_compiler_is_never_asked_again_whatever_it_says(status: int) -> None:
    said = ["nv-pci.c:237: error: too few arguments", "503 Service Unavailable: connection reset by peer"]
    assert passing_reason(failed_step(status, *said)) == ""


def test_a_step_that_says_so_by_its_status_is_tried_again() -> None:
    assert "exit code: 75" in passing_reason(failed_step(75, "fetch-pinned: a mirror does not answer"))


STEP = 'building at STEP "RUN /run/driverforge/scripts/fetch-pinned install LIST"'
PULL = "creating build container: initializing source docker://registry.site/debian:bookworm"
PING = f'{PULL}: pinging container registry registry.site: Get "https://registry.site/v2/"'


@pytest.mark.parametrize(
    "message",
    [
        f"{STEP}: while running runtime: exit status 75",
        # samba-in-kubernetes/samba-container#242
        f"{PING}: dial tcp 195.135.223.221:443: i/o timeout",
        f"{PULL}: received unexpected HTTP status: 503 Service Unavailable",
    ],
)
def test_buildah_and_podman_say_it_in_their_own_words(message: str) -> None:
    line = f"Error: {message}"
    assert passing_reason(["STEP 3/9: RUN fetch-pinned", line]) == line
    # without root it starts itself anew
    assert passing_reason([line, "Error: exit status 125"]) == line


@pytest.mark.parametrize(
    "message", [f"{STEP}: while running runtime: exit status 1", f"{PULL}: manifest unknown"]
)
def test_what_would_come_again_of_buildah_does_not(message: str) -> None:
    assert passing_reason(["503 Service Unavailable", f"Error: {message}"]) == ""


def test_an_output_without_an_error_gives_no_reason() -> None:
    assert passing_reason(["connection reset by peer", "make: Error 2"]) == ""


def test_a_push_is_judged_by_the_engines_message() -> None:
    # hashicorp/terraform-mcp-server#202
    assert passes("received unexpected HTTP status: 503 Service Unavailable")
    assert passes("toomanyrequests: Rate exceeded")
    assert not passes("denied: requested access to the resource is denied")
    assert not passes("blob upload invalid")
