"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

namespace_option = click.option(
    "-n",
    "--namespace",
    envvar="OPERATOR_NAMESPACE",
    default="gpu-operator",
    show_default=True,
    help="Where the operator's objects are. Also $OPERATOR_NAMESPACE.",
)
from_option = click.option(
    "--from",
    "folder",
    type=click.Path(path_type=Path, exists=True),
    metavar="DUMP",
    help="Read what `snapshot` or `kubectl get -o yaml` wrote, instead of a live cluster.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, whose keys are documented."
)
