"""`driverforge attestations`: what is attached to an image in a registry, and whether to believe it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands.shared import adapters, options
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import verifier_option

if TYPE_CHECKING:
    from driverforge_build.app.attestations import ReadImage
    from driverforge_build.documents.proofs import AttestationsDocument


@click.command("attestations")
@click.argument("reference", metavar="REF")
@click.option(
    "--platform", default="", metavar="OS/ARCH", help="Of the image of this platform alone: linux/amd64."
)
@click.option(
    "--require",
    "required",
    multiple=True,
    type=click.Choice(["sbom", "provenance", "test-result"]),
    help="Exit 1 where an image lacks this, or its newest test did not pass; may be repeated.",
)
@verifier_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the documents there, too: KIND-DIGEST.json.",
)
@options.json_option
def command(
    *,
    reference: str,
    platform: str,
    required: tuple[str, ...],
    verifier: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> int:
    """Show what refers to the image REF (HOST[:PORT]/PATH:TAG or @sha256:…) of each platform: SBOM,
    provenance, test results, signatures, whoever attached them.

    Without --verifier a signature is not looked at. With it a statement counts if its signature is accepted,
    and an SBOM if an accepted provenance names it. docs/attest.md says how.

    Exit status: 0; 1 where an image lacks what --require wants; 69 where the registry has no such image; 75
    where it does not answer; others as `driverforge --help` has them.
    """
    from driverforge_build.app.attestations import read_attestations, write_documents
    from driverforge_build.attest.attached import Kind
    from driverforge_oci.reference import Reference

    images = read_attestations(
        adapters.registry_client(as_json=as_json),
        Reference.parse(reference),
        platform=platform,
        required=[Kind(name) for name in required],
        verifier=adapters.verifier(verifier),
    )
    written = write_documents(images, output) if output else ()
    if as_json:
        document: AttestationsDocument = {
            "schema": 1,
            "reference": reference,
            "images": [image.document() for image in images],
        }
        say(json.dumps(document, indent=1))
    else:
        say("\n".join([*_text(images), *(f"wrote {path}" for path in written)]))
    return int(any(image.lacks for image in images))


def _text(images: Sequence[ReadImage]) -> Iterator[str]:
    for image in images:
        yield " ".join(filter(None, (image.platform, str(image.place))))
        for one in image.found:
            yield f"  {one.kind.value:11}  {one.trust.value:9}  {one.facts()}  {one.referrer.digest}"
        if not image.found:
            yield "  nothing is attached"
        for why in image.lacks:
            yield f"  LACKS: {why}"
