"""`driverforge-operator status`."""

from __future__ import annotations

from pathlib import Path

import click

from driverforge_operator.commands.options import from_option, json_option, namespace_option
from driverforge_operator.commands.output import say, say_document


@click.command("status")
@namespace_option
@from_option
@json_option
def status_command(*, namespace: str, folder: Path | None, as_json: bool) -> int:
    """Show the pools: their driver, which nodes are ready, which wait, which still run the old driver.

    Changes nothing. Exit status 0: every GPU node is ready and up to date; 1: some are not.
    """
    from driverforge_operator.app.look import look
    from driverforge_operator.commands.reader import inspector
    from driverforge_operator.explain.fleet import as_text, fleet

    document = fleet(look(inspector(folder, namespace), namespace))
    if as_json:
        say_document(document)
    else:
        say(as_text(document))
    done = not any(pool["waiting"] or pool["old"] for pool in document["pools"])
    return 0 if done and not document["unserved"] else 1
