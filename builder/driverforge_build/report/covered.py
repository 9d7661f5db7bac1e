"""covered.json: which kernels have an image, for updates of nodes to wait for.

Runs of many pipelines write one file. Each adds its images, or puts them in the place of older ones for the
same OS, architecture, driver and kernel, and of those that their tag stood for before; everything else stays.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from driverforge_build.documents.runs import CoveredDocument, CoveredImage
from driverforge_build.sharedfile import alone, read_json, replace_text
from driverforge_core.errors import InputError

Images = Mapping[str, Iterable[CoveredImage]]
"""By kernel release."""


def merge_covered(path: Path, images: Images, *, failed: Collection[str] = ()) -> CoveredDocument:
    """Add images to the file. Raises InputError for one that is damaged, StorageFailed.

    An image that passed a test once keeps that while its digest stays, unless that is one of the `failed`.
    """
    with alone(path):
        merged = merged_with(read_covered(path), images, failed=failed)
        replace_text(path, json.dumps(merged, indent=1, sort_keys=True) + "\n", option="--covered")
    return merged


def merged_with(before: CoveredDocument, images: Images, *, failed: Collection[str] = ()) -> CoveredDocument:
    kernels = {release: {_place(one): one for one in found} for release, found in before["kernels"].items()}
    for release, found in images.items():
        known = kernels.setdefault(release, {})
        for image in found:
            earlier = known.get(_place(image))
            if earlier and earlier["digest"] == image["digest"] and image["digest"] not in failed:
                image["tested"] |= earlier["tested"]
            # an update that asks for the branch would be told of what nobody pulls any more
            for replaced in [place for place, one in known.items() if _pulled_as(one) == _pulled_as(image)]:
                del known[replaced]
            known[_place(image)] = image
    return {
        "schema": 1,
        "kernels": {release: [found[place] for place in sorted(found)] for release, found in kernels.items()},
    }


def read_covered(path: Path) -> CoveredDocument:
    """What a file holds; nothing where there is none."""
    try:
        return _ADAPTER.validate_python(read_json(path.read_bytes()), strict=True)
    except FileNotFoundError:
        return {"schema": 1, "kernels": {}}
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", resolution="name another with --covered"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is no list of covered kernels",
            details=_problems(error),
            resolution="take the file from where it was published last: it is merged, never made anew",
        ) from error


def _problems(error: Exception) -> list[str]:
    if not isinstance(error, ValidationError):
        return [str(error)]
    problems = error.errors(include_url=False, include_input=False)[:10]
    return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems]


def _place(image: CoveredImage) -> tuple[str, str, str]:
    return image["os"], image["arch"], image["driver"]


def _pulled_as(image: CoveredImage) -> tuple[str, str]:
    """A tag stands for one image of an architecture."""
    return image["arch"], image["tag"]


_ADAPTER: TypeAdapter[CoveredDocument] = TypeAdapter(CoveredDocument)
