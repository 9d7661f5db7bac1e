"""What the operator may do in a cluster, from the kinds that it watches and makes.

An operator that gives rights to what it makes has to have them itself (RBAC's own rule against escalation),
so the rights of all manifests are among its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import yaml

from driverforge_operator.app.control import WATCHED
from driverforge_operator.crd.schema import cluster_policy, nvidia_driver
from driverforge_operator.ports import Kind
from driverforge_operator.state.kinds import CLUSTER_POLICY, LEASE, LEASE_NAME, NODE, NVIDIA_DRIVER, OURS

Rule = dict[str, list[str]]
READ = ("get", "list", "watch")
# server-side apply of what is not there asks for `create`, of what is there for `patch`
MAKE = (*READ, "create", "patch", "delete")


def rights() -> dict[str, list[Rule]]:
    """Rules by the role that they stand in."""
    resources = (CLUSTER_POLICY, NVIDIA_DRIVER)
    others = [kind for kind, *_ in WATCHED if kind not in OURS and kind != NODE]
    cluster = [
        *(rule([kind], READ) for kind in others if not _in_ours(kind)),
        *(rule([kind], ("patch",), part="status") for kind in resources),
        # OpenShift: an owner that is deleted after what it owns
        *(rule([kind], ("update",), part="finalizers") for kind in resources),
        rule([NODE], (*READ, "patch")),
        *(rule([kind], MAKE) for kind in OURS if not kind.namespaced),
        *granted("ClusterRole"),
    ]
    definitions = [one()["metadata"]["name"] for one in (cluster_policy, nvidia_driver)]
    return {
        "cluster": joined(cluster),
        "namespace": joined(
            [
                *(rule([kind], READ) for kind in others if _in_ours(kind)),
                *(rule([kind], MAKE) for kind in OURS if kind.namespaced),
                *granted("Role"),
            ]
        ),
        "cleanup": joined(
            [
                rule([NODE], ("get", "list", "patch")),
                *(rule([kind], ("list", "delete")) for kind in OURS),
                *(rule([kind], ("list",)) for kind in resources),
                {**rule([LEASE], ("delete",)), "resourceNames": [LEASE_NAME]},
            ]
        ),
        "cleanupResources": [
            *joined(rule([kind], ("list", "delete")) for kind in resources),
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "resourceNames": definitions,
                "verbs": ["delete"],
            },
        ],
    }


def rule(kinds: Iterable[Kind[Any]], verbs: Iterable[str], *, part: str = "") -> Rule:
    return {
        "apiGroups": sorted({kind.group for kind in kinds}),
        "resources": [f"{kind.plural}/{part}" if part else kind.plural for kind in kinds],
        **({"resourceNames": names} if (names := sorted({kind.only for kind in kinds} - {""})) else {}),
        "verbs": list(verbs),
    }


def _in_ours(kind: Kind[Any]) -> bool:
    """Whether objects of a kind are read in our namespace alone."""
    return kind.namespaced and not kind.namespace


def granted(kind: str) -> list[Rule]:
    """The rules of all roles of a kind that are in the manifests."""
    folder = files("driverforge_operator.operands").joinpath("manifests")
    documents = [
        document
        for file in sorted(folder.iterdir(), key=lambda one: one.name)
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    # some are parts of other manifests, and have no kind
    return [one for document in documents if document.get("kind") == kind for one in document["rules"]]


def joined(rules: Iterable[Rule]) -> list[Rule]:
    """The same rights, each resource once; a rule a set of verbs and an API group."""
    verbs: dict[tuple[str, str, tuple[str, ...]], dict[str, None]] = {}
    for one in rules:
        for group in one["apiGroups"]:
            for resource in one["resources"]:
                key = (group, resource, tuple(one.get("resourceNames", ())))
                verbs.setdefault(key, {}).update(dict.fromkeys(one["verbs"]))
    together: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), found in verbs.items():
        together.setdefault((group, names, tuple(sorted(found))), []).append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": sorted(resources),
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(found),
        }
        for (group, names, found), resources in sorted(together.items())
    ]
