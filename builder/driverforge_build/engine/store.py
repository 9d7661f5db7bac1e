"""Images in the engine's store, through the docker SDK.

The SDK is imported when it is used, for that takes half of a command's start-up time.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

from driverforge_build.engine.passing import passes
from driverforge_build.ports import BuiltImage, Layer, StepListener
from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    NotPermitted,
    TemporaryFailure,
    Unavailable,
)
from driverforge_oci.auth import Login
from driverforge_oci.reference import Reference

if TYPE_CHECKING:
    from docker import DockerClient


@contextmanager
def _client() -> Iterator[DockerClient]:
    """A client of the engine. Errors of the SDK, of any kind, are raised as ours.

    Raises Unavailable (no engine, or it went away), CommandFailed (it refused).
    """
    import docker
    from docker.errors import DockerException, StreamParseError
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    try:
        client = docker.from_env()
    except (DockerException, RequestException) as error:
        raise Unavailable(
            "no docker engine answers",
            details=[str(error)],
            resolution="start it, or set DOCKER_HOST to one that runs",
        ) from error
    try:
        yield client
    except DockerException as error:
        raise CommandFailed(
            "the docker engine failed",
            details=[str(error)],
            resolution="read the engine's own log, then run the same command again",
        ) from error
    except (RequestException, HTTPError, StreamParseError) as error:
        raise Unavailable(
            "the docker engine stopped answering",
            details=[str(error)],
            resolution="check that it still runs, then run the same command again",
        ) from error
    finally:
        client.close()


def inspect(reference: str) -> BuiltImage | None:
    """The image of that name in the store; None when there is none. Raises Unavailable, CommandFailed."""
    from docker.errors import ImageNotFound

    with _client() as client:
        try:
            image = client.images.get(reference)
            history = image.history()
        except ImageNotFound:
            return None
        return BuiltImage(
            reference=reference,
            id=str(image.id),
            size=int(image.attrs["Size"]),
            layers=layers_of(image.attrs["RootFS"].get("Layers") or [], history),
            labels=dict(image.labels or {}),
        )


def layers_of(digests: list[str], history: list[Mapping[str, Any]]) -> tuple[Layer, ...]:
    """Layers, base first.

    `history` is the engine's, newest first, with entries of size 0 for instructions that made no layer.
    """
    made = [entry for entry in reversed(history) if entry.get("Size")]
    if len(made) != len(digests):
        # an empty layer has size 0 too: then sizes cannot be told apart
        made = [{} for _ in digests]
    return tuple(
        Layer(digest=digest, size=int(entry.get("Size", 0)), created_by=str(entry.get("CreatedBy", "")))
        for digest, entry in zip(digests, made, strict=True)
    )


def files(reference: str, folder: str) -> dict[str, bytes] | None:
    """Content of the files below a folder of an image; None where it has no such folder.

    The engine copies them out of a container that is never started. Raises Unavailable, CommandFailed.
    """
    from docker.errors import NotFound

    with _client() as client:
        container = client.api.create_container(reference, command=["none"], network_disabled=True)["Id"]
        try:
            pieces, _ = client.api.get_archive(container, folder)
            return _files(b"".join(pieces))
        except NotFound:
            return None
        finally:
            client.api.remove_container(container)


def _files(archive: bytes) -> dict[str, bytes]:
    """Regular files of a tar, by their path below its one top folder."""
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        return {
            member.name.partition("/")[2]: stream.read()
            for member in tar
            if member.isfile() and (stream := tar.extractfile(member))
        }


def push(reference: str, remote: Reference, login: Login | None, progress: StepListener) -> None:
    """Tag an image with a registry's name and push it.

    Raises NotPermitted (credentials), CommandFailed (what the registry or the engine said), TemporaryFailure
    (the same, of something that passes), Unavailable.
    """
    problem = ""
    with _client() as client:
        client.images.get(reference).tag(remote.name, remote.tag)
        # given a login, even an empty one, the SDK looks for none of its own
        for event in client.images.push(
            remote.name, tag=remote.tag, stream=True, decode=True, auth_config=_auth_config(login)
        ):
            problem = event.get("error") or problem
            if event.get("status") and not event.get("id"):
                progress(str(event["status"]))
    if problem:
        raise _refused(remote, problem)


def pull(remote: Reference, kept: Reference, platform: str, login: Login | None) -> None:
    """Take an image from a registry, and keep it under another name. Raises as `push` does."""
    from docker.errors import APIError

    with _client() as client:
        try:
            image = client.images.pull(
                remote.name, tag=remote.tag, platform=platform, auth_config=_auth_config(login)
            )
        except APIError as error:
            raise _refused(remote, str(error), "pulled") from error
        image.tag(kept.name, kept.tag)


def _refused(remote: Reference, problem: str, done: str = "pushed") -> DriverforgeError:
    if any(word in problem.lower() for word in ("unauthorized", "denied", "authentication")):
        kind: type[DriverforgeError] = NotPermitted
        advice = f"docker login {remote.host}"
    elif "server gave HTTP response to HTTPS client" in problem:
        kind = CommandFailed
        # the daemon decides by itself which registries may have no TLS
        advice = (
            f'put "insecure-registries": ["{remote.host}"] into the daemon.json of the docker daemon and '
        )
        advice += "restart it; or push by a builder (--builder) or podman, with --registry http://…"
    else:
        kind = TemporaryFailure if passes(problem) else CommandFailed
        advice = "see the registry's own log, and run the same command again"
    return kind(f"{remote} could not be {done}", details=[problem], resolution=advice)


def _auth_config(login: Login | None) -> dict[str, str]:
    """A login as the engine's API takes it (X-Registry-Auth)."""
    if login is None:
        return {}
    if login.identity_token:
        return {"identitytoken": login.identity_token}
    return {"username": login.user, "password": login.password}
