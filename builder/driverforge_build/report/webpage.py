"""The coverage page: one HTML file that needs no network, and no JavaScript to be read.

What servers, compilers and file names say comes into it as text: the template escapes it, nothing of it is in
a script, and the page's own policy lets nothing but the one script and the one style sheet of ours do
anything, whatever else were in it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from driverforge_build import resources
from driverforge_build.report.coverage import Coverage, Group, Status
from driverforge_core.errors import UsageError
from driverforge_core.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment

CELLS = 20_000
"""What a browser on a phone still opens and filters at once; measured in docs/page.md."""
COLUMNS = 9
"""Drivers that fit beside each other on a wide screen; more stand one after another, as on a phone."""
OPEN = 300
"""Up to so many images every system is shown open."""

_MEANINGS = {
    Status.READY: "the registry has it, made from the inputs of now",
    Status.OLDER: "the registry has one of an earlier time; it serves its nodes until a new one is made",
    Status.DUE: "nothing stands against it; the pipeline's next run builds it",
    Status.FAILED: "its build, or its boot test, failed",
    Status.BLOCKED: "it cannot be built, or is left out on purpose",
    Status.UNKNOWN: "something has to be run first",
}
_SOURCES = {
    "compile": "compiled with the image",
    "node": "compiled on the node",
    "vendor": "the distribution's packages",
}


def page_text(covered: Coverage) -> str:
    """The page. Raises UsageError where it would be too large for a browser."""
    if (cells := covered.count.total()) > CELLS:
        raise UsageError(
            f"a page of {cells} images is too large for a browser; {CELLS} are the most",
            details=[f"{group.os}-{group.arch}: {group.count.total()}" for group in covered.groups],
            resolution="make one for each system, of a plan of its own: driverforge plan --json "
            f"--select '{covered.groups[0].os}-*' >plan.json",
        )
    style, script = _text("page.css"), _text("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    template = _environment().get_template("page.html.j2")
    return template.render(
        covered=covered,
        count=covered.count,
        there=covered.images,
        open=cells <= OPEN,
        systems={group.os: group.name for group in covered.groups},
        archs=list(dict.fromkeys(group.arch for group in covered.groups)),
        branches=_branches(covered.groups),
        policy=policy,
        style=style,
        script=script,
    )


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(resources.page()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # what a terminal would act on (a change of writing direction) misleads readers of a page too
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    environment.filters["moment"] = _moment
    environment.globals.update(
        counted=_counted,
        words={status: status.name.lower() for status in Status},
        meanings=_MEANINGS,
        sources=_SOURCES,
        columns=COLUMNS,
    )
    return environment


def _counted(count: Counter[Status]) -> list[tuple[Status, int]]:
    """Those that there are, in the order in which a person looks for them."""
    return [(status, count[status]) for status in Status if count[status]]


def _moment(text: str) -> str:
    """A moment for people: '2026-11-22 18:53 UTC' of '2026-11-22T18:53:01Z'; another text as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ", text, re.ASCII)
    return f"{found[1]} {found[2]} UTC" if found else text


def _text(name: str) -> str:
    return (resources.page() / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A source of a content security policy: the text of that sha256, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _branches(groups: Iterable[Group]) -> list[str]:
    return sorted({driver.partition(".")[0] for group in groups for driver in group.drivers})
