"""skopeo and regctl: programs that copy images from registry to registry.

A login is handed over in a file that only memory holds: it is neither on a command line nor left on a disk by
a run that is killed. Proxies and SSL_CERT_FILE they read from the environment, as we do, and their own
configuration (containers-registries.conf(5), policy.json, regctl's) counts as it does elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driverforge_build.engine import process
from driverforge_build.engine.authfile import auth_file
from driverforge_build.engine.buildx import require_version
from driverforge_build.engine.passing import passes
from driverforge_core.errors import CommandFailed, InputError, NotPermitted, TemporaryFailure, Unavailable
from driverforge_oci.auth import Login, LoginFor, nobody
from driverforge_oci.http import is_loopback
from driverforge_oci.reference import Reference

OLDEST_SKOPEO = (1, 9)
"""Debian 12's; none before it was tried."""
_LINES = 20
# what both log: time="…" level=fatal msg="…"
_LOGGED = re.compile(r'.*\bmsg="(?P<said>(?:[^"\\]|\\.)*)"')
_REFUSED = re.compile(r"unauthori[sz]ed|authentication required|denied|forbidden", re.IGNORECASE)


class Skopeo:
    """`login_for` is asked for the login of each side; hosts of `plain_http` have no TLS."""

    name = "skopeo"

    def __init__(self, login_for: LoginFor = nobody, *, plain_http: Collection[str] = ()) -> None:
        self._login_for = login_for
        self._plain_http = plain_http

    def check(self) -> str:
        # "skopeo version 1.9.3"
        version = _said(["skopeo", "--version"]).split()[-1]
        require_version(self.name, version, OLDEST_SKOPEO, resolution=_install(self.name))
        return f"skopeo {version}"

    def copy(self, source: Reference, place: Reference) -> None:
        words = ["skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--retry-times", "3"]
        with ExitStack() as files:
            kept = []
            for side, one in (("src", source), ("dest", place)):
                if _is_plain(one, self._plain_http):
                    words.append(f"--{side}-tls-verify=false")
                login = self._login_for(one.host, one.repository)
                kept.append(files.enter_context(_in_memory(auth_file(one.host, login))))
                words += [f"--{side}-authfile", _path_of(kept[-1])]
            words += [f"docker://{source}", f"docker://{place}"]
            said = process.work_off(words, environment={}, kept=kept)
        _expect_done(words, said, source, place)


class Regctl:
    """As Skopeo. Its own configuration (REGCTL_CONFIG) counts where it says something else of a host."""

    name = "regctl"

    def __init__(self, login_for: LoginFor = nobody, *, plain_http: Collection[str] = ()) -> None:
        self._login_for = login_for
        self._plain_http = plain_http

    def check(self) -> str:
        # a build from source may have no number
        return f"regctl {_said(['regctl', 'version', '--format', '{{.VCSTag}}']).strip().removeprefix('v')}"

    def copy(self, source: Reference, place: Reference) -> None:
        words = ["regctl", "image", "copy", "--force-recursive", str(source), str(place)]
        configuration = json.dumps(self._configuration(source, place))
        with _in_memory(configuration) as file:
            said = process.work_off(words, environment={"REGCTL_CONFIG": _path_of(file)}, kept=[file])
        _expect_done(words, said, source, place)

    def _configuration(self, source: Reference, place: Reference) -> dict[str, Any]:
        logins = {one: self._login_for(one.host, one.repository) for one in (source, place)}
        if source.host == place.host and logins[source] != logins[place]:
            raise InputError(
                f"regctl takes one login for {place.host}: {source.name} and {place.name} have two",
                resolution="give both repositories one login, or choose another --engine",
            )
        own = _regctls_own(os.environ)
        hosts = own.setdefault("hosts", {})
        for one, login in logins.items():
            plain = _is_plain(one, self._plain_http)
            hosts[one.host] = {**_regctls_host(login, plain=plain), **hosts.get(one.host, {})}
        return own


def _regctls_host(login: Login | None, *, plain: bool) -> dict[str, str]:
    found = {"tls": "disabled"} if plain else {}
    if login and login.identity_token:
        found["token"] = login.identity_token
    elif login:
        found |= {"user": login.user, "pass": login.password}
    return found


def _regctls_own(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the user has configured for it. Raises InputError for a file that is no such JSON."""
    home = environ.get("HOME", "")
    path = Path(environ.get("REGCTL_CONFIG") or f"{home}/.regctl/config.json")
    try:
        found = json.loads(path.read_bytes())
        hosts = found.get("hosts") or {}
        return {**found, "hosts": {str(name): dict(host) for name, host in hosts.items()}}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        # the content may be a secret, and so may be what a parser says of it
        raise InputError(
            f"{path} cannot be read as regctl's configuration",
            resolution="see what regctl itself says: regctl registry config",
        ) from error


def _said(argv: list[str]) -> str:
    """What a program says of itself. Raises Unavailable where it is not there, or says nothing."""
    status, said = process.output(argv, install=_install(argv[0]))
    if status or not said.strip():
        details = [f"command: {shlex.join(argv)}", *said.splitlines()[-_LINES:]]
        raise Unavailable(f"{argv[0]} does not run", details=details, resolution=_install(argv[0]))
    return said


def _install(program: str) -> str:
    return f"install {program}, or leave --engine out: driverforge copies by itself"


def _is_plain(place: Reference, plain_http: Collection[str]) -> bool:
    return place.host in plain_http or is_loopback(urlsplit(f"//{place.host}").hostname or "")


@contextmanager
def _in_memory(text: str) -> Iterator[int]:
    """A file that has no name, and is gone with the last one that has it open."""
    file = os.memfd_create("driverforge-logins")
    try:
        os.write(file, text.encode())
        yield file
    finally:
        os.close(file)


def _path_of(file: int) -> str:
    return f"/proc/self/fd/{file}"


def _expect_done(words: list[str], said: process.Said, source: Reference, place: Reference) -> None:
    if not said.status:
        return
    lines = (said.errors or said.output.decode(errors="replace")).splitlines()
    program, text = words[0], "\n".join(lines)
    hosts = dict.fromkeys((source.host, place.host))
    kind: type[CommandFailed | NotPermitted | TemporaryFailure] = CommandFailed
    resolution = f"its own words say why; without --engine {program} driverforge copies by itself"
    if passes(text):
        kind, resolution = TemporaryFailure, "run the same command again: what is complete is not sent again"
    elif _REFUSED.search(text):
        kind = NotPermitted
        resolution = f"log in where it was refused: {', or '.join(f'docker login {host}' for host in hosts)}"
    raise kind(
        f"{program} did not bring {place}: {_reason(lines) or f'it exited {said.status}'}",
        details=[f"command: {shlex.join(words)}", *lines[-_LINES:]],
        resolution=resolution,
    )


def _reason(lines: list[str]) -> str:
    last = lines[-1] if lines else ""
    found = _LOGGED.match(last)
    return found["said"].replace('\\"', '"') if found else last
