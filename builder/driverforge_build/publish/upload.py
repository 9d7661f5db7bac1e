"""One built image to a registry, under a tag that is written once, with the moving tag after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from driverforge_build.advice import Given
from driverforge_build.ports import BuiltImage, Engine, Layer, StepListener
from driverforge_build.publish.alias import (
    Joined,
    Member,
    VersionsDiffer,
    found_member,
    join,
    standing_for,
)
from driverforge_build.publish.lookup import unanswered
from driverforge_build.render.bake import INPUTS_LABEL, immutable_tag_of, local_reference, repository_of
from driverforge_build.render.context import BuildContext
from driverforge_build.render.library import library_versions
from driverforge_build.render.toolkit import ToolkitSpec
from driverforge_core.errors import InputError, Unavailable, UsageError
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import Absent, Present, labels, presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound

if TYPE_CHECKING:
    from driverforge_build.attest.attach import Attaching
    from driverforge_build.attest.attached import Attached
    from driverforge_build.attest.provenance import BuildSpan
    from driverforge_build.documents.images import PushedImage

SAME_AS_BUILD = (
    "push takes the same --matrix, --lock, --base, --sign-certificate and --toolkit-artifacts as build"
)
"""For the tag is made from all of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """One image in the registry.

    `sent` is False where it was there already, `moved` where the alias stood for it already. `waiting`: why
    the alias was left alone, '' where it stands for the image. `attached` is what was looked after.
    """

    cell: str
    reference: str
    digest: str
    sent: bool
    alias: str
    alias_digest: str
    moved: bool
    waiting: str = ""
    attached: tuple[Attached, ...] = ()

    @property
    def place(self) -> Reference:
        """The image by its own digest."""
        return Reference.parse(self.reference).with_digest(self.digest)

    def lines(self) -> tuple[str, ...]:
        """Where the image is, for people."""
        alias = self.alias + (f" (not moved: {self.waiting})" if self.waiting else "")
        return self.reference, alias, *(one.line() for one in self.attached)

    def document(self) -> PushedImage:
        return {
            "cell": self.cell,
            "reference": self.reference,
            "digest": self.digest,
            "sent": self.sent,
            "alias": self.alias,
            "alias_digest": self.alias_digest,
            "moved": self.moved,
            "waiting": self.waiting,
            "attached": [one.document() for one in self.attached],
        }


FamilyOf = Callable[[BuildContext], Sequence[BuildContext]]
"""The contexts of all architectures that an image's alias stands for, with the same matrix and lock."""


def alone(context: BuildContext) -> Sequence[BuildContext]:
    """The family of an image that has none: what its alias stands for on other platforms stays."""
    return (context,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Where images go. `registry` is HOST[:PORT]/PATH; `given` serves the advice.

    `attaching` is None where nothing is to be attached to them.
    """

    registry: str
    engine: Engine
    client: RegistryClient
    given: Given
    family_of: FamilyOf = alone
    attaching: Attaching | None = None

    def push(self, context: BuildContext, progress: StepListener) -> PushReport:
        """Push one image unless the registry has it, and let the alias stand for it.

        Raises UsageError (not built), InputError (the immutable tag is taken by other content),
        TemporaryFailure (the registry does not say).
        """
        if there := self.pushed(context):
            return there
        remote = self.member(context).reference
        _check_built(self.engine, context, self.given)
        progress(f"pushing {remote}")
        self.engine.push(local_reference(context), str(remote), progress)
        return self._report(context, sent=True)

    def fetch(self, context: BuildContext) -> bool:
        """Let the engine have the image that the registry has; False where it has none. Raises as `push`."""
        member = self.member(context)
        there = _is_there(self.client, member)
        if there:
            self.engine.pull(str(member.reference), local_reference(context), member.platform)
        return there

    def pushed(self, context: BuildContext) -> PushReport | None:
        """The image that the registry has, with the alias standing for it; None where it has none.

        Raises as `push` does.
        """
        return self._report(context, sent=False) if _is_there(self.client, self.member(context)) else None

    def from_builder(self, context: BuildContext, digest: str) -> tuple[PushReport, BuiltImage]:
        """Let the tags stand for an image that a builder has pushed by its digest, unless another one came
        first; the image as the registry has it.

        Raises as `push` does, and Unavailable where nothing came.
        """
        member = self.member(context)
        report = self.pushed(context) or self._tagged(context, digest)
        image = self.client.resolve(member.reference, member.platform)
        layers = tuple(Layer(digest=layer.digest, size=layer.size, created_by="") for layer in image.layers)
        return report, BuiltImage(
            reference=report.reference,
            id=image.digest,
            size=sum(layer.size for layer in layers),
            layers=layers,
            labels=labels(self.client, member.reference.with_digest(image.digest), member.platform),
        )

    def _tagged(self, context: BuildContext, digest: str) -> PushReport:
        member = self.member(context)
        place = member.reference.with_digest(digest)
        try:
            manifest = self.client.get_manifest(place)
        except NotFound as error:
            raise Unavailable(
                f"the builder said that it pushed {place}, and the registry does not have it",
                resolution="look into the build's log and the registry's; then run the same command again",
            ) from error
        found = labels(self.client, place, member.platform).get(INPUTS_LABEL, "")
        if found != member.inputs:
            raise InputError(
                f"the builder pushed {place}, which is made from other inputs",
                details=[f"its inputs: {found or 'not stated'}", f"ours:       {member.inputs}"],
                resolution="look into the build's log: the bake file was changed while it was built",
            )
        self.client.put_manifest(member.reference, manifest.data, manifest.media_type)
        return self._report(context, sent=True)

    def confirm(self, context: BuildContext, digest: str) -> PushReport:
        """Look after the alias of an image that the registry has, by one question where nothing is amiss.

        `digest` is what the immutable tag stands for. Raises as `push` does.
        """
        mine, alias = self.member(context), self.alias(context)
        standing = standing_for(self.client, alias)
        entry = standing.entries.get(mine.platform)
        if entry is None or entry.digest != digest or not standing.digest:
            return self._report(context, sent=False)
        return PushReport(
            cell=context.image.id,
            reference=str(mine.reference),
            digest=digest,
            sent=False,
            alias=str(alias),
            alias_digest=standing.digest,
            moved=False,
        )

    def attest(
        self, context: BuildContext, report: PushReport, built: BuildSpan | None = None
    ) -> Iterator[PushReport]:
        """The report with what the image has attached now, one artifact more each time.

        `built` is None where this run has not built the image. Raises as Attaching does: what was reported
        before that is in the registry.
        """
        if self.attaching is None:
            return
        attached = self.attaching.attach_origin(context, report.place, name=report.reference, built=built)
        for one in attached:
            report = replace(report, attached=(*report.attached, one))
            yield report

    def same_image(self, context: BuildContext, engines: str) -> tuple[Reference, str]:
        """The registry's image by its own digest, and its name, where it is the engine's of the id `engines`.

        Two builds from the same inputs are two images: what was tried of one proves nothing of the other.
        Raises Unavailable (it has none, or does not say), InputError (another one).
        """
        member = self.member(context)
        found = found_member(self.client, member)
        if found is None:
            raise Unavailable(
                f"the registry does not have {member.reference}",
                resolution="push it: " + self.given.command("push", select=(context.image.id,)),
            )
        place = member.reference.with_digest(found.digest)
        tagged = self.client.head_manifest(member.reference).digest
        # docker's classic store calls an image by its configuration, containerd's by what its tag stands for
        if engines not in (found.digest, tagged, self.client.get_manifest(place).config.digest):
            local = local_reference(context)
            raise InputError(
                f"{member.reference} is another build of {context.image.id} than the engine's image",
                details=[f"the registry's is {place.digest}", f"the engine's is {engines}"],
                resolution=f"docker pull {member.reference}; docker tag {member.reference} {local}; and try "
                "that one",
            )
        return place, str(member.reference)

    def member(self, context: BuildContext) -> Member:
        """The image as a part of its alias."""
        repository = Reference.parse(repository_of(self.registry, context.image.repository))
        return Member(
            platform=f"linux/{context.image.arch}",
            reference=repository.with_tag(immutable_tag_of(context)),
            inputs=context.inputs,
            version=context.image.version,
        )

    def alias(self, context: BuildContext) -> Reference:
        return self.member(context).reference.with_tag(context.image.alias_tag)

    def join(self, family: Sequence[BuildContext]) -> Joined:
        """Let the alias stand for all images of a family that the registry has. Raises as `index.join`."""
        return join(self.client, self.alias(family[0]), [self.member(one) for one in family])

    def _report(self, context: BuildContext, *, sent: bool) -> PushReport:
        mine, alias, waiting = self.member(context), self.alias(context), ""
        image = self.client.resolve(mine.reference, mine.platform)
        try:
            joined = self.join(self.family_of(context))
        except VersionsDiffer as error:
            joined, waiting = Joined(digest="", moved=False, images={}), error.brief
        return PushReport(
            cell=context.image.id,
            reference=str(mine.reference),
            digest=image.digest,
            sent=sent,
            alias=str(alias),
            alias_digest=joined.digest,
            moved=joined.moved,
            waiting=waiting,
        )


def _is_there(client: RegistryClient, member: Member) -> bool:
    remote = member.reference
    answer = presence(client, remote)
    if isinstance(answer, Absent):
        return False
    if not isinstance(answer, Present):
        raise unanswered(remote, answer)
    found = labels(client, remote.with_digest(answer.digest), member.platform).get(INPUTS_LABEL, "")
    if found != member.inputs:
        raise InputError(
            f"{remote} is taken by an image made from other inputs, and an immutable tag is never "
            f"overwritten",
            details=[
                f"digest there: {answer.digest}",
                f"its inputs: {found or 'not stated'}",
                f"ours:       {member.inputs}",
            ],
            resolution="push to another --registry, or delete that tag if nobody uses it",
        )
    return True


def is_built(engine: Engine, context: BuildContext) -> bool:
    """Whether the engine has the image, made from the inputs of now."""
    image = engine.inspect(local_reference(context))
    return image is not None and image.labels.get(INPUTS_LABEL) == context.inputs


def _check_built(engine: Engine, context: BuildContext, given: Given) -> None:
    if is_built(engine, context):
        return
    local = local_reference(context)
    details = [SAME_AS_BUILD]
    if isinstance(context.image, ToolkitSpec):
        details.append(f"the tag is made from these Python packages too: {library_versions()}")
    # `build` refuses a base image for an OS that it is not to build
    bases = {key: base for key, base in given.bases.items() if key == context.image.os}
    build = replace(given, bases=bases).command("build", select=(context.image.id,))
    advice = f"give push the same options as build; or build it: {build}"
    if engine.inspect(local) is None:
        raise UsageError(
            f"{context.image.id} has not been built from these inputs: the engine has no {local}",
            details=details,
            resolution=advice,
        )
    raise InputError(
        f"{local} was not built from what matrix, lock and templates say now",
        details=details,
        resolution=advice,
    )
