"""What a provenance states of the run: what its CI system says in a job's environment, matrix and lock.

GitHub: "Variables reference", and the builder id that slsa-github-generator has: the workflow file with its
ref. GitLab: "Predefined CI/CD variables", and the builder id of its own runner's provenance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.attest.provenance import Origin
from driverforge_core.errors import InputError


def pipeline(environ: Mapping[str, str]) -> Origin:
    """Builder, invocation, source and commit, as far as a CI system says them."""
    if environ.get("GITHUB_ACTIONS") == "true":
        return _github(environ)
    if environ.get("GITLAB_CI") == "true":
        return _gitlab(environ)
    return Origin()


def _github(environ: Mapping[str, str]) -> Origin:
    server, repository, run = (
        environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    )
    workflow = environ.get("GITHUB_WORKFLOW_REF", "")
    attempt = environ.get("GITHUB_RUN_ATTEMPT", "1")
    source = f"{server}/{repository}"
    return Origin(
        builder=f"{server}/{workflow}" if workflow else "",
        invocation=f"{source}/actions/runs/{run}/attempts/{attempt}" if run else "",
        source=source if repository else "",
        revision=environ.get("GITHUB_SHA", ""),
    )


def _gitlab(environ: Mapping[str, str]) -> Origin:
    project, runner = environ.get("CI_PROJECT_URL", ""), environ.get("CI_RUNNER_ID", "")
    return Origin(
        builder=f"{project}/-/runners/{runner}" if project and runner else "",
        invocation=environ.get("CI_JOB_URL", ""),
        source=project,
        revision=environ.get("CI_COMMIT_SHA", ""),
    )


def digests_of(given: Given) -> tuple[tuple[str, str], ...]:
    """Name and sha256 of matrix and lock. A matrix that extends ours is said together with our version."""
    matrix = given.matrix or resources.builtin_matrix()
    try:
        return tuple(
            (path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in (matrix, given.lock)
        )
    except OSError as error:
        raise InputError(
            f"{error.filename} cannot be read: {error.strerror}", resolution="name the file that build had"
        ) from error
