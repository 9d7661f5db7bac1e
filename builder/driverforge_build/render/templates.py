"""Jinja2 over dockerfiles/: an undefined name is an error, and the same value always gives the same text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from driverforge_build.render.operator import OperatorSpec
from driverforge_build.render.spec import ImageSpec
from driverforge_build.render.toolkit import ToolkitSpec

if TYPE_CHECKING:
    from jinja2 import Environment

AnyImage = ImageSpec | ToolkitSpec | OperatorSpec


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 -- Dockerfiles and shell, not HTML
    )


def dockerfile(image: AnyImage, folder: Path) -> str:
    """The Dockerfile of an image, from the templates in `folder`."""
    return _environment(folder).get_template(image.template).render(image=image).rstrip("\n") + "\n"


def launcher(image: AnyImage, program: str, folder: Path) -> str:
    """The sh script that starts one of its programs on the image's own interpreter."""
    package = "driverforge_operator" if isinstance(image, OperatorSpec) else "driverctl"
    template = _environment(folder).get_template("bin/launcher.j2")
    return template.render(image=image, program=program, package=package)
