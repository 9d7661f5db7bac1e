"""podman and buildah: each builds a cell's folder by itself, and shares layers through its own store.

`podman build` is buildah's, so the two command lines are one. They read a target of the bake file, where
docker reads the whole: other targets are stages of the same Dockerfile to them.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driverforge_build.engine import process
from driverforge_build.engine.buildx import PROXY_VARIABLES, require_version
from driverforge_build.engine.passing import passes, passing_reason
from driverforge_build.ports import BuildJob, BuiltImage, Layer, StepListener
from driverforge_core.errors import (
    CommandFailed,
    NotPermitted,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)
from driverforge_oci.auth import Login, LoginFor, nobody
from driverforge_oci.http import is_loopback
from driverforge_oci.reference import Reference

_VERIFY = "`verify` takes modules out of docker's images: build them with --engine docker"
OLDEST = {"podman": (5, 6), "buildah": (1, 41)}
"""The first that know `COPY --link` and --source-date-epoch."""
PUSH_S = 3600.0
_STEP = re.compile(r"(?:\[\d+/\d+\] )?STEP (?P<number>\d+)/(?P<count>\d+): (?P<what>.*)")


class Buildah:
    """`program` is 'podman' or 'buildah'. `login_for` is asked for the login that a push needs.

    `plain_http` are registries without TLS.
    """

    makes_images = True

    def __init__(
        self, program: str, login_for: LoginFor = nobody, *, plain_http: Collection[str] = ()
    ) -> None:
        self._program = program
        self._plain_http = plain_http
        self._login_for = login_for

    def check(self) -> str:
        wanted = f"{self._program} {'.'.join(map(str, OLDEST[self._program]))} or newer"
        resolution = f"install {wanted}, or build with docker"
        status, said = process.output([self._program, "--version"], install=resolution)
        if status:
            raise Unavailable(
                f"{self._program} does not run", details=said.splitlines()[-3:], resolution=resolution
            )
        # "buildah version 1.41.5 (image-spec 1.1.1, runtime-spec 1.2.1)"
        version = " ".join(said.split()[2:3])
        require_version(self._program, version, OLDEST[self._program], resolution=resolution)
        return f"{self._program} {version}"

    def network(self) -> str:
        return ""

    def build(self, job: BuildJob, progress: StepListener) -> str:
        def told(line: str) -> None:
            if found := _STEP.match(line):
                progress(f"{found['number']}/{found['count']} {process.short(found['what'])}")

        target = json.loads(job.bake_file.read_bytes())["target"][job.target]
        process.run_logged(
            build_command(self._program, job, target, environment=os.environ),
            log=job.log,
            cwd=job.bake_file.parent,
            on_line=told,
            passing=passing_reason,
        )
        return ""

    def inspect(self, reference: str) -> BuiltImage | None:
        words = ["image", "inspect"] if self._program == "podman" else ["inspect", "--type", "image"]
        status, said = process.output([self._program, *words, reference])
        if status:
            if "image not known" in said or "no such image" in said:
                return None
            raise CommandFailed(f"{self._program} cannot inspect {reference}", details=said.splitlines()[-3:])
        found = json.loads(said)
        return _podmans(reference, found[0]) if isinstance(found, list) else _buildahs(reference, found)

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        to = Reference.parse(remote)
        with _login_file(to, self._login_for(to.host, to.repository)) as login:
            # docker takes the loopback for a registry without TLS, and so do we
            host = urlsplit(f"//{to.host}").hostname or ""
            plain = ["--tls-verify=false"] if is_loopback(host) or to.host in self._plain_http else []
            words = [self._program, "push", *login, *plain, reference, f"docker://{to}"]
            status, said = process.output(words, patience=PUSH_S)
        if status:
            refused = any(word in said.lower() for word in ("unauthorized", "denied", "authentication"))
            failed = TemporaryFailure if passes(said) else CommandFailed
            raise (NotPermitted if refused else failed)(
                f"{to} could not be pushed",
                details=said.splitlines()[-3:],
                resolution=f"{self._program} login {to.host}"
                if refused
                else "see the registry's own log, and push again",
            )
        progress(f"pushed {to}")

    def pull(self, remote: str, reference: str, platform: str) -> None:
        raise Unsupported(f"{self._program} pulls nothing here", resolution=_VERIFY)

    def files(self, reference: str, folder: str) -> Mapping[str, bytes] | None:
        raise Unsupported(
            f"files of {self._program}'s images cannot be read here",
            resolution=_VERIFY,
        )


def build_command(
    program: str, job: BuildJob, target: Mapping[str, Any], *, environment: Mapping[str, str]
) -> list[str]:
    """The command line of one build, from a target of the bake file.

    Values of proxy variables are not in it: a build has them from the environment. The date of an image
    is the bake file's SOURCE_DATE_EPOCH.
    """
    epoch = target["args"]["SOURCE_DATE_EPOCH"]
    proxies = [name for name in PROXY_VARIABLES if environment.get(name)]
    return [
        *(program, "build", "--layers"),
        *(
            ("--target", job.stage, "--output", f"type=local,dest={job.output}")
            if job.output
            else ("--tag", job.reference)
        ),
        *("--platform", *target["platforms"], "--source-date-epoch", epoch),
        *(word for item in sorted(target["labels"].items()) for word in ("--label", "=".join(item))),
        *(word for name in proxies for word in ("--build-arg", name)),
        *(
            word
            for name, value in sorted({**target["args"], **job.arguments}.items())
            if name != "SOURCE_DATE_EPOCH"
            for word in ("--build-arg", f"{name}={value}")
        ),
        *(
            word
            for name, file in sorted(job.secrets.items())
            for word in ("--secret", f"id={name},src={file}")
        ),
        *(
            word
            for name, folder in sorted(job.contexts.items())
            for word in ("--build-context", f"{name}={folder}")
        ),
        *(["--network", job.network] if job.network else []),
        *(["--no-cache"] if job.no_cache else []),
        target["context"],
    ]


def _podmans(reference: str, found: Mapping[str, Any]) -> BuiltImage:
    return BuiltImage(
        reference=reference,
        id=f"sha256:{found['Id']}",
        size=int(found["Size"]),
        layers=tuple(Layer(digest=digest, size=0, created_by="") for digest in found["RootFS"]["Layers"]),
        labels=dict(found.get("Labels") or {}),
    )


def _buildahs(reference: str, found: Mapping[str, Any]) -> BuiltImage:
    image = found["OCIv1"]
    # the store keeps layers unpacked, so these are sizes of tar files
    sizes = [int(layer["size"]) for layer in json.loads(found["Manifest"])["layers"]]
    made = [entry for entry in image["history"] if not entry.get("empty_layer")]
    return BuiltImage(
        reference=reference,
        id=f"sha256:{found['FromImageID']}",
        size=sum(sizes),
        layers=tuple(
            Layer(digest=digest, size=size, created_by=str(entry.get("created_by", "")))
            for digest, size, entry in zip(image["rootfs"]["diff_ids"], sizes, made, strict=False)
        ),
        labels=dict(image["config"].get("Labels") or {}),
    )


@contextmanager
def _login_file(to: Reference, login: Login | None) -> Iterator[list[str]]:
    """Words that hand over a login, in a file that is ours alone; none where there is no login."""
    if login is None:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="driverforge-") as folder:
        file = Path(folder, "auth.json")
        file.touch(mode=0o600)
        file.write_text(_auth_file(to.host, login), encoding="utf-8")
        yield ["--authfile", str(file)]


def _auth_file(host: str, login: Login) -> str:
    """A registry's login as podman and buildah read it: containers-auth.json(5)."""
    text = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    entry = {"identitytoken": login.identity_token} if login.identity_token else {"auth": text}
    return json.dumps({"auths": {host: entry}})
