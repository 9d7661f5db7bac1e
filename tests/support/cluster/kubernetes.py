"""A Kubernetes API: etcd and kube-apiserver as plain processes, and a client.

It validates, defaults, authorises and stores as any cluster does. Nothing acts on it unless a test asks for
controllers, and there are no nodes but those that a test starts (`support.cluster.kubelet`, `guestnode`).
Without controllers a pod runs where a test gives it the name of such a node, nowhere else.
"""

from __future__ import annotations

import http
import http.client
import json
import re
import secrets
import socket
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from support.cluster.kubernetes_build import Controllers, Programs
from support.machines import qemu
from support.process import require, run, start, stop, until

_HOST = "127.0.0.1"
_TIMEOUT = 60  # seconds for one request
OPERATOR = "operator"
"""A user with every right, whose requests are in the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server said: the HTTP status and the decoded object.

    The object is a `Status` if the server refused, and text where it is not JSON.
    """

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return self.status < 300

    @property
    def message(self) -> str:
        """The server's own words about a refusal."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A client with every right. It never goes through the proxy that the environment may name."""

    port: int
    token: str
    certificate: Path
    operator: str = ""  # the token of OPERATOR
    audit: Path = Path("audit.log")
    nodes: Mapping[str, str] = field(default_factory=dict)  # name of a node → its kubelet's token
    etcd: int = 0  # the port of its store

    def kubeconfig(self, user: str, *, host: str = _HOST) -> str:
        """What the kubelet of a node needs to reach this server as system:node:NAME, or OPERATOR.

        `host` is this machine's name on the node: its own, or that of QEMU's network.
        """
        return self.kubeconfig_with({OPERATOR: self.operator, **self.nodes}[user], host=host)

    def kubeconfig_with(self, token: str, *, host: str = _HOST) -> str:
        """The same for whoever has a token."""
        cluster = {
            "server": f"https://{host}:{self.port}",
            "certificate-authority-data": b64encode(self.certificate.read_bytes()).decode(),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": cluster}],
            "users": [{"name": "bench", "user": {"token": token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
        return json.dumps(document)

    def requests(self) -> list[str]:
        """What OPERATOR asked for so far, as 'patch nodes node-1': verb, kind, name.

        Of what is about no object the path, as 'get /apis'.
        """
        found = []
        # the server may be in the middle of a line
        for line in self.audit.read_text().rpartition("\n")[0].splitlines():
            event = json.loads(line)
            about = event.get("objectRef", {})
            # a watch is told when it begins and when it ends
            if event["stage"] == ("ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"):
                what = about.get("resource") or event["requestURI"].partition("?")[0]
                words = (event["verb"], what, about.get("name", ""))
                found.append(" ".join(filter(None, (*words, about.get("subresource", "")))))
        return found

    def request(self, method: str, path: str, body: str = "", *, kind: str = "application/json") -> Answer:
        """One request with a body of media type `kind`. Raises OSError where nothing answers."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        with closing(
            http.client.HTTPSConnection(_HOST, self.port, context=context, timeout=_TIMEOUT)
        ) as connection:
            headers = {
                "Authorization": f"Bearer {self.token}",
                "Accept": "application/json",
                "Content-Type": kind,
            }
            connection.request(method, path, body.encode() or None, headers)
            response = connection.getresponse()
            text = response.read().decode()
        return Answer(status=response.status, body=json.loads(text) if text.startswith("{") else text)

    def compact(self) -> None:
        """Let the store forget all that is not so any more, as it does every few minutes elsewhere."""
        with closing(http.client.HTTPConnection(_HOST, self.etcd, timeout=_TIMEOUT)) as connection:

            def ask(path: str, body: Mapping[str, Any]) -> Any:
                connection.request("POST", f"/v3/kv/{path}", json.dumps(body))
                response = connection.getresponse()
                text = response.read().decode()
                assert response.status == http.HTTPStatus.OK, text
                return json.loads(text)

            revision = ask("range", {"key": b64encode(b"/").decode()})["header"]["revision"]
            ask("compaction", {"revision": revision, "physical": True})

    def apply(self, manifest: str, *, dry_run: bool = False) -> Answer:
        """Apply a YAML document as `kubectl apply --server-side` does: 201 if it is new, 200 if it was there.

        The server refuses unknown and repeated fields.
        """
        found = yaml.safe_load(manifest)
        metadata = found["metadata"]
        collection = self.collection(found["apiVersion"], found["kind"], metadata.get("namespace", "default"))
        query = "fieldValidation=Strict&fieldManager=driverforge-test" + ("&dryRun=All" if dry_run else "")
        return self.request(
            "PATCH", f"{collection}/{metadata['name']}?{query}", manifest, kind="application/apply-patch+yaml"
        )

    def collection(self, api_version: str, kind: str, namespace: str) -> str:
        """The path of all objects of a kind, from the server's discovery document.

        Raises LookupError for a kind that the server does not know.
        """
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        answer = self.request("GET", base)
        for resource in answer.body["resources"] if answer.ok else ():
            if resource["kind"] == kind and "/" not in resource["name"]:
                return (
                    f"{base}/namespaces/{namespace}/{resource['name']}"
                    if resource["namespaced"]
                    else f"{base}/{resource['name']}"
                )
        raise LookupError(f"the API server knows no {kind} of {api_version}")


@contextmanager
def api_server(
    programs: Programs,
    folder: Path,
    *,
    nodes: Sequence[str] = (),
    controllers: Controllers | None = None,
    options: Sequence[str] = (),
) -> Iterator[Api]:
    """Start the programs; yields once the API is ready.

    All that they write, logs too, goes to an empty folder. `nodes` are names under which a kubelet may
    register (Node authorizer, NodeRestriction); `options` are more of kube-apiserver's.
    """
    require("openssl")
    client, peer, secure = _free_ports(3)
    tokens = {name: secrets.token_hex(16) for name in nodes}
    api = Api(
        port=secure,
        token=secrets.token_hex(16),
        certificate=folder / "server.crt",
        audit=folder / "audit.log",
        operator=secrets.token_hex(16),
        nodes=tokens,
        etcd=client,
    )
    _write_files(folder, api)
    with ExitStack() as stack:

        def launch(name: str, argv: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
            log = folder / f"{name}.log"
            child = start(argv, log=log)
            stack.callback(stop, child)
            return child, log

        child, log = launch("etcd", _etcd(programs, folder, client, peer))
        until(lambda: _listens(client), "etcd", child=child, log=log)
        child, log = launch("kube-apiserver", [*_apiserver(programs, folder, client, secure), *options])
        until(lambda: _ready(api), "kube-apiserver", child=child, log=log)
        if controllers:
            config = folder / "controllers.kubeconfig"
            config.write_text(api.kubeconfig_with(api.token))
            for argv in _controllers(controllers, folder, config):
                launch(Path(argv[0]).name, argv)
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            until(lambda: api.request("GET", path).ok, "kube-controller-manager")
        yield api


def _etcd(programs: Programs, folder: Path, client: int, peer: int) -> list[str]:
    here, there = f"http://{_HOST}:{client}", f"http://{_HOST}:{peer}"
    urls = [f"--listen-client-urls={here}", f"--advertise-client-urls={here}", f"--listen-peer-urls={there}"]
    cluster = [f"--initial-advertise-peer-urls={there}", f"--initial-cluster=default={there}"]
    return [
        str(programs.etcd),
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        *urls,
        *cluster,
    ]


def _apiserver(programs: Programs, folder: Path, etcd: int, port: int) -> list[str]:
    return [
        str(programs.apiserver),
        f"--etcd-servers=http://{_HOST}:{etcd}",
        f"--secure-port={port}",
        f"--bind-address={_HOST}",
        f"--advertise-address={_HOST}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={qemu.SERVICE}/29",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={folder / 'server.key'}",
        f"--service-account-key-file={folder / 'server.crt'}",  # a PKCS#8 private key is refused here
        f"--admission-control-config-file={folder / 'admission.yaml'}",
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    ]


def _controllers(programs: Controllers, folder: Path, config: Path) -> list[list[str]]:
    common = [f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"]
    signing = [
        f"--service-account-private-key-file={folder / 'server.key'}",
        f"--root-ca-file={folder / 'server.crt'}",
    ]
    return [
        # a guest without KVM that is busy answers late
        [str(programs.manager), *common, *signing, "--node-monitor-grace-period=120s"],
        [str(programs.scheduler), *common],
    ]


def _write_files(folder: Path, api: Api) -> None:
    """Write the certificate, the users, and an admission configuration that is as strict as it gets.

    The one certificate is self-signed, its own CA, and signs service account tokens.
    """
    usage = [
        "-addext",
        "keyUsage=critical,digitalSignature,keyCertSign",
        "-addext",
        f"subjectAltName=IP:{_HOST},IP:{qemu.HERE},IP:{qemu.SERVICE}",
    ]
    key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(folder / "server.key"),
    ]
    run(
        "openssl",
        "req",
        "-x509",
        "-subj",
        "/CN=driverforge-test",
        "-days",
        "30",
        *usage,
        *key,
        "-out",
        api.certificate,
    )
    users = [
        f'{api.token},admin,admin,"system:masters"',
        f'{api.operator},{OPERATOR},{OPERATOR},"system:masters"',
        *(f'{token},system:node:{name},{name},"system:nodes"' for name, token in api.nodes.items()),
    ]
    (folder / "tokens.csv").write_text("".join(f"{user}\n" for user in users))
    audit = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [OPERATOR]}, {"level": "None"}],
    }
    (folder / "audit.yaml").write_text(json.dumps(audit))
    (folder / "audit.log").touch()
    security = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "restricted", "enforce-version": "latest"},
    }
    admission = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "PodSecurity", "configuration": security}],
    }
    (folder / "admission.yaml").write_text(json.dumps(admission))


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


def _ready(api: Api) -> bool:
    """Whether every start-up hook is done.

    Only then is there what the server makes itself: priority classes and roles.
    """
    try:
        return api.request("GET", "/readyz").ok
    except ConnectionError:
        return False


def documents(text: str) -> list[str]:
    """The YAML documents of a file as text: the server sees what a reader sees, repeated keys too."""
    parts = re.split(r"(?m)^---[ \t]*$\n?", text)
    return [part for part in parts if yaml.compose(part, Loader=yaml.SafeLoader) is not None]
