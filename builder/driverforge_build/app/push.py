"""The life of `driverforge push`: images that the engine has go to a registry, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from driverforge_build.ports import Engine, StepListener
from driverforge_build.publish.upload import Publisher, PushReport
from driverforge_build.render.bake import local_reference
from driverforge_build.render.context import BuildContext
from driverforge_core.errors import DriverforgeError


def pushable(contexts: Iterable[BuildContext], engine: Engine, *, named: bool) -> tuple[BuildContext, ...]:
    """What is to be pushed: all of it where the user named cells, else the images that the engine has."""
    return tuple(context for context in contexts if named or engine.inspect(local_reference(context)))


def push_all(
    contexts: Iterable[BuildContext], publisher: Publisher, *, keep_going: bool, progress: StepListener
) -> tuple[list[PushReport], dict[str, DriverforgeError]]:
    """Push images one after the other. Returns what became of each, and the errors by cell.

    An image that is in the registry, and to which something could not be attached, is in both. Stops at the
    first error unless `keep_going`.
    """
    reports: dict[str, PushReport] = {}
    errors: dict[str, DriverforgeError] = {}
    for context in contexts:
        cell = context.image.id
        try:
            reports[cell] = publisher.push(context, progress)
            for report in publisher.attest(context, reports[cell]):
                reports[cell] = report
        except DriverforgeError as error:
            errors[cell] = error
            if not keep_going:
                break
    return list(reports.values()), errors
