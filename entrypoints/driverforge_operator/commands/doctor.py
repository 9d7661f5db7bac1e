"""`driverforge-operator doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from driverforge_operator.commands.options import from_option, json_option, namespace_option
from driverforge_operator.commands.output import say, say_document


@click.command("doctor")
@namespace_option
@from_option
@json_option
def doctor_command(*, namespace: str, folder: Path | None, as_json: bool) -> int:
    """Look for what is wrong with the installation: definitions, operators, rights, namespace, admission.

    Changes nothing. Rights are those of the user who asks. Exit status 0: nothing was found; 1: something
    was.
    """
    from driverforge_operator.app.look import installation
    from driverforge_operator.commands.reader import inspector
    from driverforge_operator.explain.installation import as_text, document, examine

    known = installation(inspector(folder, namespace), namespace)
    found = examine(known)
    if as_json:
        say_document(document(found, known))
    else:
        say(as_text(found, known))
    return 1 if found else 0
