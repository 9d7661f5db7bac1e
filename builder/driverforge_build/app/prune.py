"""The life of `driverforge mirror prune`: lists and dumps in, a plan, then deletions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_mirror.lists.reader import load_inventory, load_mirror_lock
from driverforge_mirror.lists.target import Target
from driverforge_mirror.prune.keep import Keep, named_by
from driverforge_mirror.prune.stock import Judgement, Pruner
from driverforge_mirror.shapes import MirrorPruneDocument, PrunedManifest
from driverforge_mirror.yamltext import Read, read_bytes, read_documents
from driverforge_oci.client import RegistryClient
from driverforge_oci.reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneInputs:
    """Files: lists and inventories and dumps that keep, and lists that count no more; `read` reads lists."""

    locks: Sequence[Path]
    inventories: Sequence[Path] = ()
    dumps: Sequence[Path] = ()
    dropped: Sequence[Path] = ()
    read: Read = read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """What is to become of a mirror. `foreign` as in MirrorPruneDocument."""

    pruner: Pruner
    repositories: Sequence[Judgement]
    foreign: list[str] | None

    def carry_out(self) -> Iterator[PrunedManifest]:
        """Delete, one after the other. Raises as RegistryClient.delete_manifest."""
        for repository in self.repositories:
            if repository.doomed:
                yield from self.pruner.carry_out(repository)

    def planned(self) -> list[PrunedManifest]:
        return [one.pruned(digest) for one in self.repositories for digest in one.doomed]

    def document(self, deleted: list[PrunedManifest]) -> MirrorPruneDocument:
        return {
            "schema": 1,
            "kept": [kept for one in self.repositories for kept in one.kept_manifests()],
            "deleted": deleted,
            "foreign": self.foreign,
            "left": [left for one in self.repositories for left in one.left],
        }


def plan_prune(inputs: PruneInputs, client: RegistryClient, target: Target) -> PrunePlan:
    """Read the repositories that lists name. Nothing is changed.

    One that does not answer is an error: what is not known to be unneeded stays.
    """
    keep, dropped = Keep(target=target), dict[str, list[str]]()
    for path in inputs.locks:
        keep.add_lock(str(path), load_mirror_lock(path, inputs.read))
    repositories = set(keep.wanted)
    for path in inputs.inventories:
        keep.add_inventory(str(path), load_inventory(path))
    for path in inputs.dumps:
        keep.add_dump(str(path), read_documents(path))
    for path in inputs.dropped:
        for repository, known in named_by(target, load_mirror_lock(path, inputs.read)).items():
            dropped.setdefault(repository, []).extend(known)
    places = [Reference(host=target.host, repository=name) for name in sorted({*repositories, *dropped})]
    pruner = Pruner(client=client, keep=keep, dropped=dropped)
    return PrunePlan(
        pruner=pruner,
        repositories=[pruner.plan(place) for place in places],
        foreign=_foreign(client, places, target),
    )


def _foreign(client: RegistryClient, places: Sequence[Reference], target: Target) -> list[str] | None:
    """Repositories below the mirror's path that no list names."""
    listed = client.repositories(places[0]) if places else None
    if listed is None:
        return None
    below, known = f"{target.path}/" if target.path else "", {place.repository for place in places}
    return [f"{target.host}/{name}" for name in listed if name.startswith(below) and name not in known]
