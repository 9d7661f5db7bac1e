"""What a mirror has to keep: what lists name, what inventories say, and what runs on nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.tags import kernel_text
from driverforge_mirror.charts.values import text_at
from driverforge_mirror.lists.loads import entries
from driverforge_mirror.lists.target import Target
from driverforge_mirror.shapes import MirrorInventoryDocument, MirrorLockDocument
from driverforge_oci.reference import Reference

_IMAGE_KEYS = ("image", "imageID")
# of old kubelets with docker
_PULLABLE = "docker-pullable://"

Reasons = dict[str, dict[str, list[str]]]
"""Repository → tag or digest → why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """`wanted` stays with all below it. Of `running` digests the tags above them stay too.

    `kernels` maps a kernel, as tags write it, to who runs it. Each list of reasons is in the order of what
    was given.
    """

    target: Target
    wanted: Reasons = field(default_factory=dict)
    running: Reasons = field(default_factory=dict)
    kernels: dict[str, list[str]] = field(default_factory=dict)

    def add_lock(self, name: str, lock: MirrorLockDocument) -> None:
        for repository, known in named_by(self.target, lock).items():
            for what in known:
                _add(self.wanted, repository, what, name)

    def add_inventory(self, name: str, inventory: MirrorInventoryDocument) -> None:
        """What an inventory has stays, of whatever mirror it is: by where it lay, and by where it would here.

        InputError for one that keeps nothing of what is known already: whoever gives it means otherwise.
        """
        known, found = set(self.wanted), set[str]()
        for image in inventory["images"]:
            place, named = Reference.parse(image["place"]), Reference.parse(image["image"])
            for repository in {place.repository, self.target.place(named).repository}:
                found.add(repository)
                for what in filter(None, (place.tag, image["digest"])):
                    _add(self.wanted, repository, what, name)
        if not (known & found or inventory["runs"]):
            raise InputError(
                f"{name} would keep nothing: no list has a repository with any of its images",
                details=[f"it is the inventory of {inventory['mirror']}"],
                resolution="give the list that it belongs to with --mirror-lock, too, or leave it out",
            )
        for one in inventory["runs"]:
            self._add_kernel(one["kernel"], f"{name}: {one['nodes']} nodes run it")

    def add_dump(self, name: str, documents: list[Any]) -> None:
        """Objects of a cluster, as kubectl writes them: pods and what makes pods, and nodes.

        Where no pod is among them, what nodes have on their disks counts. InputError for a dump of nothing.
        """
        objects = [one for document in documents for one in _objects(document)]
        nodes = [one for one in objects if one.get("kind") == "Node"]
        others = [one for one in objects if one.get("kind") != "Node"]
        has_pods = any(one.get("kind") == "Pod" for one in others)
        if not objects:
            raise InputError(
                f"{name} holds no object of a cluster",
                resolution="write it with: kubectl get nodes,pods -A -o json",
            )
        for one in others if has_pods else objects:
            why = "/".join(filter(None, (one.get("kind"), *_name_of(one))))
            for text in dict.fromkeys(_images(one)):
                self._add_running(text, why)
        for node in nodes:
            if kernel := text_at(node, "status.nodeInfo.kernelVersion"):
                self._add_kernel(kernel, f"Node/{text_at(node, 'metadata.name')} runs this kernel")

    def for_kernel(self, tag: str) -> list[str]:
        """Who runs the kernel that a driver's tag names."""
        return [why for kernel, told in self.kernels.items() if f"-{kernel}-" in f"-{tag}-" for why in told]

    def _add_kernel(self, kernel: str, why: str) -> None:
        _append(self.kernels.setdefault(kernel_text(KernelRelease.parse(kernel)), []), why)

    def _add_running(self, text: str, why: str) -> None:
        """An image by the mirror's name, or by the vendor's where the runtime was sent to the mirror."""
        try:
            named = Reference.parse(text.removeprefix(_PULLABLE))
        except InputError:
            # 'sha256:…': an image that came without a registry
            return
        for repository in {named.repository, self.target.place(named).repository}:
            if named.tag:
                _add(self.wanted, repository, named.tag, why)
            if named.digest:
                _add(self.running, repository, named.digest, why)


def named_by(target: Target, lock: MirrorLockDocument) -> dict[str, list[str]]:
    """What a list names in each repository of the mirror: tags and digests, with those of platforms."""
    places = target.places(image["image"] for image in lock["images"])
    found: dict[str, list[str]] = {}
    for entry in entries(lock, places):
        platforms = [one["digest"] for one in entry.content["platforms"]]
        known = found.setdefault(entry.place.repository, [])
        known += filter(None, (entry.place.tag, entry.content["digest"], *platforms))
    return found


def _add(reasons: Reasons, repository: str, what: str, why: str) -> None:
    _append(reasons.setdefault(repository, {}).setdefault(what, []), why)


def _append(reasons: list[str], why: str) -> None:
    if why not in reasons:
        reasons.append(why)


def _objects(document: object) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict) or "kind" not in document:
        return
    items = document.get("items")
    if isinstance(items, list):
        for item in items:
            yield from _objects(item)
    else:
        yield document


def _name_of(document: Mapping[str, Any]) -> tuple[str, str]:
    return text_at(document, "metadata.namespace"), text_at(document, "metadata.name")


def _images(value: object) -> Iterator[str]:
    """Every image that an object names: of pods, of templates of pods, and on a node's disk."""
    if isinstance(value, list):
        for item in value:
            yield from _images(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in _IMAGE_KEYS and isinstance(item, str):
                yield item
            elif key == "names" and isinstance(item, list):
                yield from (name for name in item if isinstance(name, str))
            else:
                yield from _images(item)
