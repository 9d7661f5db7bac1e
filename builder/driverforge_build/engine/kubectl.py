"""The cluster that kubectl speaks to, by its kubeconfig and its plugins for logins: objects are read."""

from __future__ import annotations

import shlex

from driverforge_build.engine.process import converse
from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable

_PATIENCE_S = 120.0


def get(resources: str) -> bytes:
    """A List as JSON: `resources` are kubectl's, such as 'clusterpolicies,nvidiadrivers'.

    Raises Unavailable without kubectl, TemporaryFailure where it does not end, CommandFailed where it is
    refused.
    """
    argv = ["kubectl", "get", resources, "--output", "json"]
    command = f"command: {shlex.join(argv)}"
    try:
        said = converse(argv, b"", patience=_PATIENCE_S)
    except OSError as error:
        raise Unavailable(
            f"kubectl cannot be started: {error.strerror}",
            details=[command],
            resolution="install kubectl, or run that command where there is one, and give a file",
        ) from error
    except TimeoutError as error:
        raise TemporaryFailure(
            f"kubectl does not end in {_PATIENCE_S:g} s",
            details=[command],
            resolution="see whether KUBECONFIG and the current context name a cluster that answers",
        ) from error
    if said.status:
        raise CommandFailed(
            f"kubectl could not list {resources}",
            details=[command, *said.errors.splitlines()[-5:]],
            resolution="KUBECONFIG and the current context have to name the cluster, and its user needs the "
            f"right to list {resources}; or give a file",
        )
    return said.output
