"""Kubeconfigs as kubectl reads them (client-go, tools/clientcmd): which server, and how to log in.

`KUBECONFIG` may list several files. Of two that say something of one name the first counts; one that is not
there counts as empty. Relative paths start at the folder of the file that has them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from driverforge_core.errors import InputError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOME = "~/.kube/config"


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """Something that another program keeps in a kubeconfig."""

    name: str = ""
    extension: Any = None


class Server(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A cluster of a kubeconfig."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[Extension] | None = None


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable for a program."""

    name: str
    value: str


class Program(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A program that logs in (KEP 541)."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A user of a kubeconfig."""

    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: Program | None = None
    auth_provider: dict[str, Any] | None = None
    impersonate: str | None = msgspec.field(name="as", default=None)
    impersonate_uid: str | None = msgspec.field(name="as-uid", default=None)
    impersonate_groups: list[str] | None = msgspec.field(name="as-groups", default=None)


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str | None = None
    user: str | None = None


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: Server | None = None
    user: User | None = None
    context: _Context | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    current_context: str | None = None
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None
    contexts: list[_Named] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Which server, and who asks. All paths are whole."""

    server: Server
    user: User


def find(environ: Mapping[str, str], *, account: Path = ACCOUNT) -> Access:
    """The cluster that `KUBECONFIG` names, else that of this pod's account, else that of ~/.kube/config.

    Raises InputError, whose details name the file and what is missing there.
    """
    listed = [Path(one).expanduser() for one in environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    if not listed and (found := _of_pod(environ, account)):
        return found
    files = listed or [Path(environ.get("HOME", "~")).expanduser() / ".kube/config"]
    there = [one for one in files if one.is_file()]
    if not there:
        missing = (
            "no file is there" if listed else "KUBECONFIG is not set, and this is no pod with an account"
        )
        raise _unknown(files, missing)
    return _current(there)


def _of_pod(environ: Mapping[str, str], account: Path) -> Access | None:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not (host and port and (account / "token").exists()):
        return None
    address = f"[{host}]" if ":" in host else host
    return Access(
        server=Server(server=f"https://{address}:{port}", certificate_authority=str(account / "ca.crt")),
        user=User(token_file=str(account / "token")),
    )


def _current(files: list[Path]) -> Access:
    """What the current context of some files says."""
    read = [(one, _read(one)) for one in files]
    name = next((one.current_context for _, one in read if one.current_context), "")
    if not name:
        raise _unknown(files, "there is no current-context", "choose one: kubectl config use-context NAME")
    contexts = _first((path, one.contexts) for path, one in read)
    found = contexts.get(name)
    if found is None or found[1].context is None:
        raise _unknown(files, f"there is no context {name!r}", "kubectl config get-contexts names those")
    context = found[1].context
    clusters, users = (
        _first((path, one.clusters) for path, one in read),
        _first((path, one.users) for path, one in read),
    )
    path, entry = clusters.get(context.cluster or "", (files[0], None))
    server = entry.cluster if entry else None
    if server is None or not server.server:
        raise _unknown(files, f"context {name!r}: there is no cluster {context.cluster!r} with a server")
    server = _whole(server, path, "certificate_authority")
    path, entry = users.get(context.user or "", (files[0], None))
    if context.user and (entry is None or entry.user is None):
        raise _unknown(files, f"context {name!r}: there is no user {context.user!r}")
    user = entry.user if entry and entry.user else User()
    if user.auth_provider:
        told = f"user {context.user!r}: auth-provider is gone since Kubernetes 1.26"
        raise _unknown(files, told, "log in by exec: your cloud's own tool writes such a kubeconfig")
    user = _whole(user, path, "token_file", "client_certificate", "client_key")
    # a program without a path is looked for in PATH
    if user.exec and "/" in user.exec.command:
        command = str(path.parent / user.exec.command)
        user = msgspec.structs.replace(user, exec=msgspec.structs.replace(user.exec, command=command))
    return Access(server=server, user=user)


def _read(path: Path) -> _File:
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        return msgspec.convert(found or {}, _File)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise _unknown([path], str(error)) from error


def _first(parts: Iterable[tuple[Path, list[_Named] | None]]) -> dict[str, tuple[Path, _Named]]:
    """Entries by name, with the file that has each; the first counts."""
    found: dict[str, tuple[Path, _Named]] = {}
    for path, entries in parts:
        for one in entries or ():
            found.setdefault(one.name, (path, one))
    return found


Part = TypeVar("Part", Server, User)


def _whole(part: Part, file: Path, *fields: str) -> Part:
    """With paths that start at the root."""
    paths = {one: str(file.parent / value) for one in fields if (value := getattr(part, one))}
    return msgspec.structs.replace(part, **paths)


def _unknown(files: Iterable[Path], told: str, resolution: str = "") -> InputError:
    return InputError(
        "no cluster is known",
        details=[f"{', '.join(map(str, files))}: {told}"],
        resolution=resolution
        or "name a kubeconfig in KUBECONFIG, or run in a pod that has a service account",
    )
