"""What a mirror answers, and why that is not the file that was asked for."""

from __future__ import annotations

from http.client import responses

from driverforge_build.fetch.cache import KeptAnswer
from driverforge_build.ports import NotThere, Refused
from driverforge_core.errors import TemporaryFailure, Unavailable
from driverforge_oci.transport import BUSY, Response, asked_to_wait, host_of, without_secrets

DOCUMENT_LIMIT = 16 << 20
"""Bytes. The largest InRelease of a distribution has less than one MiB."""


def length(response: Response) -> int:
    """The length that an answer announces, 0 where it does not."""
    text = response.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def conditional_headers(kept: KeptAnswer | None) -> dict[str, str]:
    """What asks a mirror for a document only if it is another than the kept one."""
    # a header that we send is ASCII; what a server sent need not be
    if kept and kept.etag and kept.etag.isascii():
        return {"If-None-Match": kept.etag}
    if kept and kept.last_modified and kept.last_modified.isascii():
        return {"If-Modified-Since": kept.last_modified}
    return {}


def judge(response: Response, url: str) -> None:
    """Raises NotThere, Refused, TemporaryFailure or Unavailable for every status but 200."""
    status, host = response.status, host_of(response.url or url)
    if status == 200:
        return
    asked = without_secrets(url)
    answer = f"{without_secrets(response.url or url)}: HTTP {status} {responses.get(status, '')}".rstrip()
    if status in (404, 410):
        raise NotThere(
            f"the mirror has no {asked}",
            details=[answer],
            resolution="check the address given with --mirror, and the suite",
        )
    if status in BUSY:
        raise TemporaryFailure(
            f"{host} is busy or broken{asked_to_wait(response.headers)}",
            details=[answer],
            resolution="run the same command again later",
        )
    raise (Refused if status in (401, 403) else Unavailable)(
        f"{host} refuses the request",
        details=[answer],
        resolution="check the proxy and the mirror's access rules",
    )


def check_encoding(response: Response, url: str) -> None:
    """Raises Unavailable for a document that is compressed, though we asked for it as it is.

    What it would unpack to is the server's choice.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise Unavailable(
            f"{host_of(url)} sends a file that is encoded ({encoding[:40]}), which was not asked for",
            details=[without_secrets(url)],
            resolution="check the address given with --mirror, and the proxy: one of them changes files",
        )


def check_end(response: Response, url: str) -> None:
    """Raises Unavailable where a file ends when the connection does: half of it looks like a whole one."""
    chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
    if not chunked and "content-length" not in response.headers:
        raise Unavailable(
            f"{host_of(url)} does not say how long the file is: nobody could tell whether all of it came",
            details=[without_secrets(url)],
            resolution="check the address and the proxy; an archive of NVIDIA's can be given with --archive",
        )


def check_document(url: str, body: bytearray) -> None:
    """Raises Unavailable for what is larger than any document can be, and for a web page with status 200.

    A captive portal or a filtering proxy answers so in the mirror's place.
    """
    where = host_of(url) or without_secrets(url)
    if len(body) > DOCUMENT_LIMIT:
        raise Unavailable(
            f"{where} sends more than {DOCUMENT_LIMIT >> 20} MiB where a repository's signed file should be",
            details=[without_secrets(url)],
            resolution="check the address given with --mirror",
        )
    start = body[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        raise Unavailable(
            f"{where} answers with a web page where a repository's file should be",
            details=[without_secrets(url)],
            resolution="open the address in a browser: a proxy or a network's login page may stand between; "
            "or name a mirror with --mirror",
        )
