"""What makes a cluster pull from its mirror: values, patches of objects, and configuration of runtimes.

Of the values only what differs: where an image lies. Versions stay as they are, for the operator makes a
driver's tag of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml

from driverforge_core.errors import InputError
from driverforge_mirror.lists.loads import entries
from driverforge_mirror.lists.target import Paths, Target
from driverforge_mirror.needs.slots import BY_PATH, UNPULLED
from driverforge_mirror.shapes import MirrorLockDocument, MirrorReason
from driverforge_oci.reference import Reference

_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_HEAD = "# Made by driverforge mirror rewrite\n"


def rewritten(document: MirrorLockDocument, target: Target) -> dict[str, str]:
    """The files, by name: each is whole, and none is there that has nothing to say."""
    document = _pulled(document)
    places = target.places(image["image"] for image in document["images"])
    files = {"images.txt": _images(document, places)}
    for name, overlay in _overlays(document, places).items():
        prefix = document["chart"]["prefix"] if document["chart"] and name == "values.yaml" else ""
        files[name] = _HEAD + yaml.safe_dump({prefix: overlay} if prefix else overlay, sort_keys=True)
    if target.paths is not Paths.FLATTEN:
        for host in sorted({Reference.parse(image).host for image in places}):
            files[f"certs.d/{host}/hosts.toml"] = _hosts_toml(host, target)
    repositories = {Reference.parse(image).name: place.name for image, place in sorted(places.items())}
    files["registries.conf.d/driverforge-mirror.conf"] = _registries_conf(repositories, target)
    files["openshift.yaml"] = _mirror_sets(repositories)
    return files


def _pulled(document: MirrorLockDocument) -> MirrorLockDocument:
    """The list without what no pod pulls: charts, and packages."""
    images = [
        one
        for one in document["images"]
        if not one["reasons"] or any(reason["slot"] not in UNPULLED for reason in one["reasons"])
    ]
    return {**document, "images": images}


def not_rewritten(document: MirrorLockDocument) -> list[str]:
    """What somebody has to change by hand, a sentence each."""
    return [
        f"{image['image']} stands in a list ({reason['slot']}): change it there yourself"
        for image in _pulled(document)["images"]
        for reason in image["reasons"]
        if reason["slot"] not in BY_PATH
    ]


def _images(document: MirrorLockDocument, places: Mapping[str, Reference]) -> str:
    """What is to be copied where: the source by digest, and its place with the tag."""
    lines = []
    for entry in entries(document, places):
        source = Reference.parse(entry.name).with_digest(entry.content["digest"])
        tag = entry.place.tag
        place = entry.place.with_tag(tag) if tag else entry.place.with_digest(entry.content["digest"])
        lines.append(f"{source} {place}\n")
    return "".join(lines)


def _overlays(document: MirrorLockDocument, places: Mapping[str, Reference]) -> dict[str, dict[str, Any]]:
    """The values' overlay, and the patch of each object."""
    found: dict[str, dict[str, Any]] = {}
    for image in document["images"]:
        for reason in image["reasons"]:
            if reason["slot"] in BY_PATH:
                name, path = _where(reason)
                table = found.setdefault(name, {})
                for key in path:
                    table = table.setdefault(key, {})
                table |= _moved(reason, places[image["image"]])
    return found


def _where(reason: MirrorReason) -> tuple[str, list[str]]:
    """The file and the path in it. An NVIDIADriver has its driver's keys right below `spec`."""
    kind, _, name = reason["object"].partition(" ")
    path = reason["slot"].split(".")
    if not kind:
        return "values.yaml", path
    if not name:
        return "clusterpolicy-patch.yaml", ["spec", *path]
    # it becomes a file's name
    if not _OBJECT_NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of a Kubernetes object", resolution="make the lock anew")
    own = path[1:] if path[0] == "driver" else path
    return f"nvidiadriver-{name}-patch.yaml", ["spec", *own]


def _moved(reason: MirrorReason, place: Reference) -> dict[str, str]:
    """The keys that change: `repository` as a rule, `image` where it alone is the whole reference."""
    if BY_PATH[reason["slot"]].tag == "tag":
        return {"repository": place.name}
    if "repository" in reason["said"]:
        return {"repository": place.name.rpartition("/")[0]}
    # as it is said, for the operator may add the node's OS to it
    said = Reference.parse(reason["said"]["image"])
    return {"image": str(replace(said, host=place.host, repository=place.repository))}


def _hosts_toml(host: str, target: Target) -> str:
    """containerd's, for certs.d. `server` is what it falls back on: named, it never asks the vendor."""
    path = "/".join(filter(None, (target.path, host.replace(":", "-") if target.paths is Paths.HOST else "")))
    address = f"{'http' if target.plain else 'https'}://{target.host}/v2{'/' if path else ''}{path}"
    # override_path: the path is whole, containerd adds no /v2 of its own
    how = 'capabilities = ["pull", "resolve"]\noverride_path = true\n'
    # containerd 1.6 refuses a file without a host, though `server` says it all
    quoted = json.dumps(address)
    return f"{_HEAD}server = {quoted}\n{how}\n[host.{quoted}]\n{how}"


def _registries_conf(repositories: Mapping[str, str], target: Target) -> str:
    """containers-registries.conf(5), of CRI-O and podman: an exact repository each, no way back."""
    return _HEAD + "".join(
        f"\n[[registry]]\nprefix = {json.dumps(source)}\nlocation = {json.dumps(place)}\n"
        f"insecure = {'true' if target.plain else 'false'}\n"
        for source, place in repositories.items()
    )


def _mirror_sets(repositories: Mapping[str, str]) -> str:
    """OpenShift's ImageDigestMirrorSet and ImageTagMirrorSet."""
    return _HEAD + yaml.safe_dump_all(_sets(repositories), sort_keys=False)


def _sets(repositories: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for what in ("Digest", "Tag"):
        mirrors = [
            {"source": source, "mirrors": [place], "mirrorSourcePolicy": "NeverContactSource"}
            for source, place in repositories.items()
        ]
        yield {
            "apiVersion": "config.openshift.io/v1",
            "kind": f"Image{what}MirrorSet",
            "metadata": {"name": "driverforge-mirror"},
            "spec": {f"image{what}Mirrors": mirrors},
        }
