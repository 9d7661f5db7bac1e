"""`snapshot`: what leaves a cluster has no secret, and is what `--from` reads."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from driverforge_core.errors import InputError, NotPermitted
from driverforge_operator.app.look import explain
from driverforge_operator.app.snapshot import snapshot
from driverforge_operator.cli import cli
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.redact import redact, redact_text
from driverforge_operator.explain.sentence import sentence
from support.samples.scenes import NAMESPACE, NODE, SceneFolder

PLANTED = "hunter2-planted"
OPAQUE = "c2VjcmV0LXBsYW50ZWQtaGVyZS0xMjM0"


def troubled() -> SceneFolder:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold(
        "driver",
        "nvidia-driver-ctr",
        {"waiting": {"reason": "CrashLoopBackOff"}},
        lastState={"terminated": {"exitCode": 1}},
        restartCount=2,
    )
    scene.log("driver", "nvidia-driver-ctr", "Could not resolve Linux kernel version\n", previous=True)
    scene.log("container-toolkit", "driver-validation", "waiting\n")
    return scene


def plant(scene: SceneFolder) -> None:
    """Secrets wherever people put them."""
    (driver,) = scene.pod("driver")["spec"]["containers"]
    driver["env"] += [
        {"name": "DB_PASSWORD", "value": PLANTED},
        {"name": "HTTPS_PROXY", "value": f"http://user:{PLANTED}@proxy:3128"},
        {"name": "WHATEVER", "value": OPAQUE},
    ]
    driver["args"] = ["init", f"--token={PLANTED}", "--password", PLANTED]
    scene.policy["spec"]["driver"]["env"] = [{"name": "NGC_API_KEY", "value": f"nvapi-{PLANTED}"}]
    scene.node["metadata"]["annotations"].update(
        {
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"password": PLANTED}),
            "site.example/join-token": PLANTED,
            "site.example/blob": OPAQUE,
        }
    )
    auth = base64.b64encode(f"robot:{PLANTED}".encode()).decode()
    docker = json.dumps({"auths": {"r.example": {"auth": auth, "password": PLANTED}}})
    scene.others += [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "pull", "namespace": NAMESPACE},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64.b64encode(docker.encode()).decode()},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "licensing-config", "namespace": NAMESPACE},
            "data": {"client_configuration_token.tok": PLANTED, "gridd.conf": f"Server={PLANTED}"},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "ours",
                "namespace": NAMESPACE,
                "labels": {"app.kubernetes.io/managed-by": "driverforge-operator"},
            },
            "data": {
                "run.sh": f"curl -u a https://b:{PLANTED}@c/\nexport password={PLANTED}\nmodprobe nvidia"
            },
        },
    ]
    scene.log("driver", "nvidia-driver-ctr", f"fetching https://a:{PLANTED}@r.example\nBearer {OPAQUE}x\n")
    scene.warn("Pod", "nvidia-driver-daemonset-x7k2p", "Failed", f"Failed to pull: token={PLANTED}")


def test_planted_secrets_do_not_leave(tmp_path: Path) -> None:
    scene = troubled()
    plant(scene)
    source = scene.write(tmp_path / "cluster")
    assert PLANTED in (source / "cluster.json").read_text()
    files = snapshot(Dump(source), NAMESPACE).files
    for name, text in files.items():
        for secret in (PLANTED, OPAQUE, base64.b64encode(PLANTED.encode()).decode()[:-3]):
            assert secret not in text, name
    assert "client_configuration_token.tok" in files["configmaps.yaml"]
    assert "modprobe nvidia" in files["configmaps.yaml"]
    assert "secrets.yaml" not in files


def test_a_secret_that_somebody_dumped_keeps_its_names(tmp_path: Path) -> None:
    scene = SceneFolder()
    plant(scene)
    (secret,) = (one for one in scene.others if one["kind"] == "Secret")
    found = redact(secret)
    assert list(found["data"]) == [".dockerconfigjson"]
    assert found["data"][".dockerconfigjson"].startswith("REDACTED (")


@pytest.mark.parametrize(
    "text",
    [
        "Failed to pull image r.example/driver@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c",
        "nvidia.com/gpu.deploy.driver=true",
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "https://nvcr.io/v2/nvidia/driver/manifests/595-ubuntu22.04",
        "https://nvcr.io/v2/nvidia/driver?mail=a@b.example",
        "the token expired, and the secret was not found",
        "--token-file /run/secrets/token --secret-name pull",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https_proxy=http://u:p%40ss@proxy:3128/", "https_proxy=http://REDACTED@proxy:3128/"),
        ("password: 'a b c', next", "password: REDACTED, next"),
        ("https://0123abcdef@git.example/x", "https://REDACTED@git.example/x"),
        ("redis://:s3cr3t@cache:6379", "redis://REDACTED@cache:6379"),
        ("login --password hunter2 --user a", "login --password REDACTED --user a"),
        ("login --registry-token 'a b' x", "login --registry-token REDACTED x"),
        ('{"auth":"cm9ib3Q6eA=="}', '{"auth":"REDACTED"}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nx", "REDACTED\nx"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer REDACTED"),
        ("using ghp_0123456789abcdef now", "using REDACTED now"),
    ],
)
def test_secrets_within_a_text(text: str, left: str) -> None:
    assert redact_text(text) == left


def test_fields_that_name_secrets_stay() -> None:
    pod = {
        "kind": "Pod",
        "spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [
                {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}}]}
            ],
            "volumes": [{"secret": {"secretName": "certs"}}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    }
    assert redact(pod) == pod


@pytest.mark.parametrize("name", ["snap", "snap.tar", "snap.tgz"])
def test_a_snapshot_explains_what_the_cluster_would(tmp_path: Path, name: str) -> None:
    source, target = troubled().write(tmp_path / "cluster"), tmp_path / name
    words = ["snapshot", str(target), "--from", str(source)]
    answer = CliRunner().invoke(cli, words, standalone_mode=False)
    assert answer.exception is None
    told = [sentence(NODE, explain(Dump(one), NAMESPACE, NODE)[1]) for one in (source, target)]
    assert told[0] == told[1]
    assert "[kernel-headers]" in told[0]
    again = CliRunner().invoke(cli, words, standalone_mode=False)
    assert isinstance(again.exception, InputError)


def test_a_cluster_without_node_feature_discovery_has_a_snapshot(tmp_path: Path) -> None:
    scene = troubled()  # NVIDIA's script ends where no node has the label of the GPU
    scene.node["metadata"]["labels"] = {}
    files = snapshot(Dump(scene.write(tmp_path)), NAMESPACE).files
    assert {"nodes.yaml", "pods.yaml", "daemonsets.yaml", "README.txt"} <= set(files)


def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    class Narrow(Dump):
        """A user who may read neither events nor logs."""

        def everywhere(self, kind: Any, *, fields: str = "") -> Any:
            if kind.name == "Event":
                raise NotPermitted("no events")
            return super().everywhere(kind, fields=fields)

        def tail(self, log: Any, lines: int) -> Any:
            raise NotPermitted("no logs")

    found = snapshot(Narrow(troubled().write(tmp_path)), NAMESPACE)
    assert found.unread[0] == "events of all namespaces: no events"
    assert "not read: log of k8s-driver-manager" in found.files["README.txt"]


def test_a_hostile_archive_writes_nothing_and_a_broken_one_is_told(tmp_path: Path) -> None:
    target = tmp_path / "hostile.tar"
    outside = tmp_path / "outside.yaml"
    outside.write_text(yaml.safe_dump({"kind": "Node"}))
    with tarfile.open(target, "w") as archive:
        archive.add(outside, arcname="../../outside2.yaml")
        link = tarfile.TarInfo("link.yaml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    Dump(target)
    assert not (tmp_path.parent / "outside2.yaml").exists()
    target.write_bytes(b"no tar")
    with pytest.raises(InputError, match="is no dump"):
        Dump(target)
