"""A connection to an API server as a kubeconfig asks for it."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from driverforge_core.errors import DriverforgeError, InputError, Unavailable
from driverforge_oci.http import proxy_for
from driverforge_operator.cluster.kubeconfig import Access, Program, Server, User

_GROUP = "client.authentication.k8s.io"
_PATIENCE = 120  # seconds for a program that nobody talks to
_Flow = Generator[httpx2.Request, httpx2.Response, None]


def client(
    access: Access, timeout: httpx2.Timeout, *, environ: Mapping[str, str] = os.environ
) -> httpx2.Client:
    """Raises InputError for files that cannot be read and proxies that cannot be asked."""
    server, user = access.server, access.user
    try:
        trust = _trust(server)
        if user.client_certificate or user.client_certificate_data:
            certificate = _content(user.client_certificate_data, user.client_certificate)
            _present(trust, certificate, _content(user.client_key_data, user.client_key))
        return httpx2.Client(
            base_url=server.server or "",
            verify=trust,
            timeout=timeout,
            # as Go's programs have it: none for this machine itself
            proxy=server.proxy_url or proxy_for(server.server or "", environ) or None,
            trust_env=False,
            auth=_auth(access, trust, environ),
            headers=_impersonation(user),
        )
    # a socks proxy needs a package beside httpx2
    except (OSError, ValueError, ImportError, httpx2.InvalidURL) as error:
        raise InputError(
            "the kubeconfig's cluster cannot be asked",
            details=[f"{server.server}: {error}"],
            resolution="correct its certificates, its server or its proxy-url",
        ) from error


class _Trust(ssl.SSLContext):
    """What a server is trusted by. With a `name` its certificate has to be of that, whatever its address."""

    name: str | None = None

    def wrap_socket(self, *args: Any, **how: Any) -> ssl.SSLSocket:
        how["server_hostname"] = self.name or how.get("server_hostname")
        return super().wrap_socket(*args, **how)

    def wrap_bio(self, *args: Any, **how: Any) -> ssl.SSLObject:
        how["server_hostname"] = self.name or how.get("server_hostname")
        return super().wrap_bio(*args, **how)


def _trust(server: Server) -> _Trust:
    found = _Trust(ssl.PROTOCOL_TLS_CLIENT)
    found.name = server.tls_server_name
    if server.insecure_skip_tls_verify:
        found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    elif server.certificate_authority_data or server.certificate_authority:
        authority = _content(server.certificate_authority_data, server.certificate_authority)
        found.load_verify_locations(cadata=authority.decode())
    else:
        found.load_default_certs()
    return found


def _content(data: str | None, path: str | None) -> bytes:
    """What a kubeconfig holds itself counts before a file."""
    if data:
        return base64.b64decode(data)
    if not path:
        raise ValueError("a client certificate without a client-key")
    return Path(path).read_bytes()


def _present(trust: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Log in with a certificate; OpenSSL takes files alone, and reads them at once."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        trust.load_cert_chain(file.name)


def _impersonation(user: User) -> list[tuple[str, str]]:
    found = [("Impersonate-User", user.impersonate), ("Impersonate-Uid", user.impersonate_uid)]
    found += [("Impersonate-Group", one) for one in user.impersonate_groups or ()]
    return [(name, value) for name, value in found if value]


def _auth(access: Access, trust: ssl.SSLContext, environ: Mapping[str, str]) -> httpx2.Auth | None:
    user = access.user
    if user.token_file:
        return _TokenFile(Path(user.token_file), user.token or "")
    if user.token:
        return _Token(user.token)
    if user.exec:
        return _Plugin(user.exec, access.server, trust, environ)
    return httpx2.BasicAuth(user.username, user.password or "") if user.username else None


class _Token(httpx2.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> _Flow:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class _TokenFile(httpx2.Auth):
    """A token that the kubelet exchanges; while its file is gone, the last one counts."""

    def __init__(self, path: Path, token: str) -> None:
        self._path = path
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> _Flow:
        try:
            self._token = self._path.read_text(encoding="utf-8").strip()
        except OSError:
            if not self._token:
                raise
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    status: _Status


class _Plugin(httpx2.Auth):
    """A program that gives a token or a certificate until it expires, or the server refuses it (401)."""

    def __init__(
        self, program: Program, server: Server, trust: ssl.SSLContext, environ: Mapping[str, str]
    ) -> None:
        self._program = program
        self._server = server
        self._trust = trust
        self._environ = environ
        self._lock = threading.Lock()
        self._known: _Status | None = None
        versions = [f"{_GROUP}/{one}" for one in ("v1", "v1beta1", "v1alpha1")]
        if program.api_version not in versions:
            raise ValueError(f"exec of {program.api_version!r}: known are {', '.join(versions)}")

    def sync_auth_flow(self, request: httpx2.Request) -> _Flow:
        used = self._credential(None)
        self._log_in(request, used)
        answer = yield request
        if answer.status_code == httpx2.codes.UNAUTHORIZED:
            self._log_in(request, self._credential(used))
            yield request

    def _log_in(self, request: httpx2.Request, found: _Status) -> None:
        if found.token:
            request.headers["Authorization"] = f"Bearer {found.token}"

    def _credential(self, refused: _Status | None) -> _Status:
        """Of now; another one than was `refused`."""
        with self._lock:
            known = self._known
            if known is None or known is refused or _expired(known):
                known = self._known = self._run()
                if known.client_certificate_data:
                    certificate, key = known.client_certificate_data, known.client_key_data
                    _present(self._trust, certificate.encode(), key.encode())
            return known

    def _run(self) -> _Status:
        program = self._program
        interactive = program.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if program.interactive_mode == "Always" and not interactive:
            raise self._failed("it has to talk to somebody, and there is no terminal")
        try:
            done = subprocess.run(
                [program.command, *(program.args or ())],
                env=self._variables(interactive=interactive),
                stdin=None if interactive else subprocess.DEVNULL,
                capture_output=not interactive,
                stdout=subprocess.PIPE if interactive else None,
                timeout=None if interactive else _PATIENCE,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise self._failed(str(error)) from error
        if done.returncode:
            words = (done.stderr or b"").decode(errors="replace").splitlines()
            raise self._failed(f"it ended with {done.returncode}", *words)
        try:
            found = msgspec.json.decode(done.stdout, type=_Credential)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._failed(f"what it prints is no ExecCredential: {error}") from error
        if (found.kind, found.api_version) != ("ExecCredential", program.api_version):
            raise self._failed(
                f"it prints a {found.kind} of {found.api_version}, not of {program.api_version}"
            )
        return found.status

    def _variables(self, *, interactive: bool) -> dict[str, str]:
        spec: dict[str, object] = {"interactive": interactive}
        if self._program.provide_cluster_info:
            spec["cluster"] = _cluster_info(self._server)
        told = {"kind": "ExecCredential", "apiVersion": self._program.api_version, "spec": spec}
        return {
            **self._environ,
            **{one.name: one.value for one in self._program.env or ()},
            "KUBERNETES_EXEC_INFO": json.dumps(told),
        }

    def _failed(self, *told: str) -> DriverforgeError:
        return Unavailable(
            f"the kubeconfig's login program {self._program.command} gives no login",
            details=told,
            resolution=self._program.install_hint or "run the program by hand, and log in as it says",
        )


def _expired(found: _Status) -> bool:
    until = found.expiration_timestamp
    return until is not None and until <= datetime.now(timezone.utc)


def _cluster_info(server: Server) -> dict[str, object]:
    """What a program learns of its cluster (client.authentication.k8s.io, `Cluster`)."""
    authority = server.certificate_authority_data or (
        base64.b64encode(Path(server.certificate_authority).read_bytes()).decode()
        if server.certificate_authority
        else None
    )
    config = (one.extension for one in server.extensions or () if one.name == f"{_GROUP}/exec")
    told = {
        "server": server.server,
        "tls-server-name": server.tls_server_name,
        "insecure-skip-tls-verify": server.insecure_skip_tls_verify or None,
        "certificate-authority-data": authority,
        "proxy-url": server.proxy_url,
        "config": next(config, None),
    }
    return {key: value for key, value in told.items() if value is not None}
