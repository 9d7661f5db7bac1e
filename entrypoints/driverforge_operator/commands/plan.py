"""`driverforge-operator plan`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from driverforge_core.errors import UsageError
from driverforge_operator.commands.options import from_option, json_option, namespace_option
from driverforge_operator.commands.output import say, say_document

if TYPE_CHECKING:
    from driverforge_operator.explain.documents import ActionDocument
    from driverforge_operator.plan.actions import Action


@click.command("plan")
@namespace_option
@from_option
@click.option("--objects", is_flag=True, help="Print the objects that would be applied, as YAML.")
@json_option
def plan_command(*, namespace: str, folder: Path | None, objects: bool, as_json: bool) -> int:
    """Show what `run` would change now: nothing is written.

    Nodes are labelled, objects applied or deleted, and the status of custom resources written, in this order.
    The images of a live cluster are looked up in their registries, as `run` does.
    """
    from driverforge_operator.app.lookups import looked_up
    from driverforge_operator.cluster.registries import registries
    from driverforge_operator.commands.reader import inspector
    from driverforge_operator.plan.actions import Apply
    from driverforge_operator.plan.whole import plan
    from driverforge_operator.state.observed import observe

    if objects and as_json:
        raise UsageError("--objects prints YAML, and --json what would change: leave one out")
    reader = inspector(folder, namespace)
    state = observe(reader, namespace, os.environ)
    if not folder:
        state = looked_up(state, registries(reader, os.environ))
    actions = plan(state)
    if as_json:
        say_document({"schema": 1, "actions": [_document(one) for one in actions]})
        return 0
    if objects:
        import yaml

        documents = [dict(one.document) for one in actions if isinstance(one, Apply)]
        say(yaml.safe_dump_all(documents, sort_keys=False).rstrip("\n"))
        return 0
    for action in actions:
        say(str(action))
    if not actions:
        say("nothing to do")
    return 0


def _document(action: Action) -> ActionDocument:
    ref = action.ref
    return {
        "action": _verb(action),
        "api_version": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "told": str(action),
    }


def _verb(action: Action) -> Literal["apply", "delete", "label", "status"]:
    from driverforge_operator.plan.actions import (
        Apply,
        Delete,
        LabelNamespace,
        PatchNode,
        SetStatus,
        StandDown,
    )

    match action:
        case Apply():
            return "apply"
        case Delete():
            return "delete"
        case SetStatus() | StandDown():
            return "status"
        case PatchNode() | LabelNamespace():
            return "label"
