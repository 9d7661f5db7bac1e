"""Where the API server is: of this pod's cluster, or of a kubeconfig."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driverforge_core.errors import InputError, Unavailable

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, what it is trusted by, and how to log in.

    `host` is a name or an address; one of IPv6 has no brackets. `token` is asked for each request: the
    kubelet renews a pod's token.
    """

    host: str
    port: int
    trust: ssl.SSLContext
    token: Callable[[], str]

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"


def find(environ: Mapping[str, str], kubeconfig: str = "", *, account: str = ACCOUNT) -> Address:
    """The cluster of a kubeconfig, else the one that this pod is in. Raises Unavailable and InputError."""
    if kubeconfig:
        return _of_kubeconfig(Path(kubeconfig))
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not port.isdigit():
        raise Unavailable(
            "no cluster is known",
            details=["KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, as in a pod"],
            resolution="run this in a pod, or give a kubeconfig as JSON: KUBECONFIG",
        )
    folder = Path(account)
    try:
        trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except OSError as error:
        raise Unavailable(
            "the pod's service account cannot be read",
            details=[str(error)],
            resolution="the pod needs automountServiceAccountToken: true",
        ) from error
    return Address(
        host=host, port=int(port), trust=trust, token=lambda: (folder / "token").read_text().strip()
    )


def _of_kubeconfig(path: Path) -> Address:
    """The current context, with a token or a client certificate in files."""
    try:
        document = json.loads(path.read_text())
        context = _named(document, "context", document["current-context"])
        cluster = _named(document, "cluster", context["cluster"])
        user = _named(document, "user", context["user"])
        url = urlsplit(cluster["server"])
        trusted = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
        trust = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"), cadata=trusted or None
        )
        if "client-certificate" in user:
            trust.load_cert_chain(user["client-certificate"], user.get("client-key"))
        token = str(user.get("token", ""))
        host, port = str(url.hostname), url.port or 443
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise InputError(
            f"{path} is no kubeconfig that this program reads",
            details=[f"{type(error).__name__}: {error}"],
            resolution="write one with `kubectl config view --raw --minify --flatten -o json`, "
            "with a token as its user's credentials",
        ) from error
    return Address(host=host, port=port, trust=trust, token=lambda: token)


def _named(document: Any, kind: str, name: str) -> Any:
    return next(entry[kind] for entry in document[f"{kind}s"] if entry["name"] == name)
