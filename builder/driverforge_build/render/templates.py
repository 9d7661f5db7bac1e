"""Jinja2 over dockerfiles/: an undefined name is an error, and the same value always gives the same text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from driverforge_build.render.spec import ImageSpec

if TYPE_CHECKING:
    from jinja2 import Environment

PROGRAMS = ("driverctl", "nvidia-driver")
"""Launchers on the image's PATH: ours, and the name that NVIDIA's operator calls."""


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 -- Dockerfiles and shell, not HTML
    )


def dockerfile(image: ImageSpec, folder: Path) -> str:
    """The Dockerfile of an image, from the templates in `folder`."""
    return _environment(folder).get_template(f"{image.family}/Dockerfile.j2").render(image=image).rstrip("\n") + "\n"


def launcher(image: ImageSpec, program: str, folder: Path) -> str:
    """The sh script that starts one of PROGRAMS on the image's own interpreter."""
    return _environment(folder).get_template("bin/launcher.j2").render(image=image, program=program)
