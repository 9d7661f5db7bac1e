"""Rules on the templates of which k3s and rke2 make containerd's configuration. Pure."""

from __future__ import annotations

import re

from driverforge_core.errors import InputError
from driverforge_toolkit.doctor.evidence import Diagnosis, NodeEvidence, TemplateEvidence
from driverforge_toolkit.runtime.backends import template_cure
from driverforge_toolkit.runtime.backends.template_render import rendered
from driverforge_toolkit.runtime.formats.values import dotted

# Go's text/template, as k3s and rke2 log it at their end
TEMPLATE_FAILED = re.compile(r"template: (?P<name>compiled_template|base):(?P<line>\d+)(?::\d+)?: ")
CONTAINERD_STARTS = re.compile(r"Running containerd |containerd is now running")


def template_without_base(evidence: NodeEvidence) -> Diagnosis | None:
    for template in evidence.templates:
        if template_cure.is_bare(template.text):
            name = template.distribution
            return Diagnosis(
                what=f"{name}'s template has nothing of {name}'s own configuration: "
                "CNI and registries are lost at its next start",
                evidence=(f"{template.path} has no {template_cure.BASE}", *_left_out(template)),
                command=template_cure.command(template.path, template.text, template.unit),
            )
    return None


def template_error(evidence: NodeEvidence) -> Diagnosis | None:
    """What is made of a template is not TOML, or nothing was made of it: then the distribution says why."""
    for template in evidence.templates:
        if not template_cure.is_bare(template.text) and (wrong := _wrong_with(template, evidence)):
            brief, details, in_base = wrong
            name = template.distribution
            return Diagnosis(
                what=brief,
                evidence=(*details, *(() if in_base else _left_out(template))),
                command=f"# update {name}: the mistake is in its own template (k3s#8754: not in releases "
                "after 1.25.15, 1.26.10, 1.27.7 and 1.28.3)"
                if in_base
                else template_cure.command(template.path, template.text, template.unit),
            )
    return None


def _wrong_with(
    template: TemplateEvidence, evidence: NodeEvidence
) -> tuple[str, tuple[str, ...], bool] | None:
    """What is wrong, how it was seen, and whether it is in the distribution's own template."""
    try:
        rendered(template.text, template.path, base=template.base)
    except InputError as error:
        return error.brief, tuple(error.details), False
    for source, lines in evidence.logs.items():
        told = [line for line in lines if TEMPLATE_FAILED.search(line) or CONTAINERD_STARTS.search(line)]
        found = TEMPLATE_FAILED.search(told[-1]) if told else None
        if found is not None:
            of_base = found["name"] == "base" or int(found["line"]) > len(template.text.splitlines())
            what = f"{template.distribution} does not start: it cannot make containerd's configuration"
            return what, (f"{source}: {told[-1].strip()}",), of_base
    return None


def _left_out(template: TemplateEvidence) -> tuple[str, ...]:
    """What the cure does not keep, for people."""
    keys = template_cure.left_out(template.text)
    own = f"{template.distribution}'s own values come back for"
    return (f"{own} {', '.join(map(dotted, keys))}",) if keys else ()


def is_made(config: str, evidence: NodeEvidence) -> bool:
    """Whether a distribution makes this file of a template that has a problem of its own."""
    wrong = template_without_base(evidence) or template_error(evidence)
    folders = [template.path.rpartition("/")[0] for template in evidence.templates]
    return wrong is not None and config.rpartition("/")[0] in folders
