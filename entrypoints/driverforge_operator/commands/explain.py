"""`driverforge-operator explain`."""

from __future__ import annotations

from pathlib import Path

import click

from driverforge_operator.commands.options import from_option, json_option, namespace_option
from driverforge_operator.commands.output import say, say_document


@click.command("explain")
@click.argument("node")
@namespace_option
@from_option
@json_option
def explain_command(*, node: str, namespace: str, folder: Path | None, as_json: bool) -> int:
    """Say why NODE is not ready: which gate is closed, on which container, and what helps.

    Works on nodes of NVIDIA's operator, too. Changes nothing. Exit status 0: the node is ready; 1: it is not.
    """
    from driverforge_operator.app.look import explain
    from driverforge_operator.commands.reader import inspector
    from driverforge_operator.explain import sentence
    from driverforge_operator.explain.gates import closed

    sight, gates = explain(inspector(folder, namespace), namespace, node)
    if as_json:
        say_document(sentence.document(node, gates, sight.unread))
    else:
        say(sentence.table(node, gates, sight.unread))
    return 1 if closed(gates) else 0
