"""Which manifests of a mirror nothing needs any more, and how they go.

Registries list tags, and neither what has none nor what is above something. So each repository is read from
its tags and from what lists name, down to the last manifest. Manifests go by digest, those below before what
is above them: a run that was stopped finds the tag again. Before a repository's deletions it is read once
more, and all that came meanwhile stays, with all below it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

from driverforge_core.errors import Unsupported
from driverforge_mirror.prune.keep import Keep
from driverforge_mirror.shapes import KeptManifest, PrunedManifest
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import ASKED_AT_ONCE
from driverforge_oci.reference import Reference, is_digest
from driverforge_oci.referrers import referrers
from driverforge_oci.session import NotFound

# 'sha256-<hex>' lists what refers to a digest where the registry does not; cosign's tags end with .sig, …
_State = Literal["planned", "deleted", "gone", "kept"]
_ABOUT = re.compile(r"(sha256)-([0-9a-f]{64})(?:\..+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A repository as it was read.

    `below` has each manifest that is there, with those that it is made of and that refer to it.
    """

    place: Reference
    tags: Mapping[str, str]
    below: Mapping[str, Sequence[str]]

    def closure(self, digest: str) -> list[str]:
        """What is there of a manifest and all below it, each once: the lowest first, itself last."""
        found: dict[str, None] = {}
        # a list of referrers that clients keep may say anything, that something lies below itself as well
        seen: set[str] = set()

        def walk(one: str) -> None:
            if one in self.below and one not in seen:
                seen.add(one)
                for part in self.below[one]:
                    walk(part)
                found[one] = None

        walk(digest)
        return list(found)

    def subject(self, tag: str) -> str:
        """The digest that a tag is about, '' for an image's tag."""
        found = _ABOUT.fullmatch(tag)
        return ":".join(found.groups()) if found else ""


def read(client: RegistryClient, place: Reference, known: Collection[str]) -> Stock:
    """A repository, as far as its tags and the digests among `known` lead. Raises as RegistryClient does."""
    try:
        names = client.tags(place)
    except NotFound:
        names = []

    def digest_of_tag(tag: str) -> tuple[str, str]:
        try:
            return tag, client.head_manifest(place.with_tag(tag)).digest
        except NotFound:
            return tag, ""

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        tags = {tag: digest for tag, digest in pool.map(digest_of_tag, names) if digest}
        stock = Stock(place=place, tags=tags, below={})
        subjects = filter(None, map(stock.subject, tags))
        waiting = {*tags.values(), *filter(is_digest, known), *subjects}
        below: dict[str, Sequence[str]] = {}
        seen: set[str] = set()
        while waiting:
            seen |= waiting
            found = pool.map(lambda digest: (digest, _below(client, place.with_digest(digest))), waiting)
            below |= {digest: parts for digest, parts in found if parts is not None}
            waiting = {one for parts in below.values() for one in parts} - seen
    return Stock(place=place, tags=tags, below=below)


def _below(client: RegistryClient, place: Reference) -> list[str] | None:
    """None where there is no such manifest."""
    try:
        manifest = client.get_manifest(place)
    except NotFound:
        return None
    return [one.digest for one in (*manifest.children, *referrers(client, place))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What becomes of a repository. `doomed` is in the order of deletion."""

    stock: Stock
    kept: Mapping[str, Sequence[str]]
    doomed: Sequence[str]
    left: Sequence[str]

    def kept_manifests(self) -> list[KeptManifest]:
        place = self.stock.place
        return [
            {"repository": place.name, "tag": tag, "digest": digest, "why": list(why)}
            for digest, why in self.kept.items()
            for tag in self.tags_of(digest) or [""]
        ]

    def pruned(self, digest: str, state: _State = "planned") -> PrunedManifest:
        place = self.stock.place
        return {"repository": place.name, "tags": self.tags_of(digest), "digest": digest, "state": state}

    def tags_of(self, digest: str) -> list[str]:
        return [tag for tag, stands_for in self.stock.tags.items() if stands_for == digest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruner:
    """`keep` says what stays. `dropped` maps repositories to tags and digests of lists that count no more."""

    client: RegistryClient
    keep: Keep
    dropped: Mapping[str, Sequence[str]]

    def plan(self, place: Reference) -> Judgement:
        """What is to become of a repository. Raises as RegistryClient does: then nothing is known of it."""
        return judge(self._read(place), self.keep, self.dropped.get(place.repository, ()))

    def carry_out(self, plan: Judgement) -> Iterator[PrunedManifest]:
        """Delete what the plan says and is still so, one after the other. Raises as delete_manifest does.

        What a registry refuses while an index has it, as zot does, is asked for again once the others are
        gone.
        """
        place = plan.stock.place
        now = self._read(place)
        new = {tag: ["came meanwhile"] for tag in now.tags if now.tags[tag] != plan.stock.tags.get(tag)}
        own = {**self.keep.wanted.get(place.repository, {}), **new}
        keep = replace(self.keep, wanted={**self.keep.wanted, place.repository: own})
        still = judge(now, keep, self.dropped.get(place.repository, ()))
        refused = []
        for digest in plan.doomed:
            if digest not in still.doomed:
                yield plan.pruned(digest, "kept" if digest in now.below else "gone")
                continue
            try:
                yield plan.pruned(digest, self._deleted(place, digest))
            except Unsupported:
                refused.append(digest)
        for digest in refused:
            yield plan.pruned(digest, self._deleted(place, digest))

    def _deleted(self, place: Reference, digest: str) -> _State:
        return "deleted" if self.client.delete_manifest(place.with_digest(digest)) else "gone"

    def _read(self, place: Reference) -> Stock:
        known = (self.keep.wanted, self.keep.running, self.dropped)
        return read(self.client, place, [what for one in known for what in one.get(place.repository, ())])


def judge(stock: Stock, keep: Keep, dropped: Collection[str] = ()) -> Judgement:
    """What stays and what goes. `dropped` are tags and digests of lists that count no more."""
    images = {tag: digest for tag, digest in stock.tags.items() if not stock.subject(tag)}
    gone = [what for what in dropped if what in stock.below]
    kept = _kept(stock, keep, images, gone)
    going = [one for root in (*images.values(), *gone) if root not in kept for one in stock.closure(root)]
    first, left = list[str](), list[str]()
    for tag, digest in stock.tags.items():
        subject = stock.subject(tag)
        if not subject or digest in kept:
            continue
        if subject in stock.below and subject not in going:
            left.append(
                f"{stock.place.with_tag(tag)} is about a manifest without a tag, which may be somebody's: "
                "give the list that had it with --drop"
            )
        else:
            first += stock.closure(digest)
    doomed = [one for one in dict.fromkeys((*first, *going)) if one not in kept]
    return Judgement(stock=stock, kept=kept, doomed=doomed, left=left)


def _kept(
    stock: Stock, keep: Keep, images: Mapping[str, str], gone: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Every manifest that stays, and why."""
    wanted, running = (one.get(stock.place.repository, {}) for one in (keep.wanted, keep.running))
    kept: dict[str, Sequence[str]] = {}

    def stays(digest: str, why: Sequence[str], name: str) -> None:
        parts = stock.closure(digest)
        if why and parts:
            kept[digest] = list(dict.fromkeys((*kept.get(digest, ()), *why)))
            for part in parts:
                kept.setdefault(part, [f"part of {name}"])

    def runs(digest: str) -> list[str]:
        return [why for part in stock.closure(digest) for why in running.get(part, ())]

    for tag, digest in images.items():
        stays(digest, [*wanted.get(tag, ()), *runs(digest), *keep.for_kernel(tag)], tag)
    for digest in gone:
        stays(digest, runs(digest), digest)
    for digest, why in (*wanted.items(), *running.items()):
        stays(digest, why, digest)
    # a signature of a signature is found in the round after its subject's
    while more := {
        tag: digest for tag, digest in stock.tags.items() if digest not in kept and stock.subject(tag) in kept
    }:
        for tag, digest in more.items():
            stays(digest, [f"about {stock.subject(tag)}"], tag)
    return kept
