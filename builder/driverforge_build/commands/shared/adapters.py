"""The real engine, mirrors and registry, made here and handed down: no room below makes one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driverforge_build.advice import Given
    from driverforge_build.app.knowledge import LookupFor
    from driverforge_build.app.prepare import Prepared
    from driverforge_build.attest.attach import Attaching
    from driverforge_build.commands.shared.options import Registry
    from driverforge_build.discover.settings import Settings
    from driverforge_build.discover.subscription import Subscription
    from driverforge_build.fetch.fetcher import Fetcher
    from driverforge_build.fetch.web import Told
    from driverforge_build.matrix import OsRow
    from driverforge_build.matrix.fields import Arch
    from driverforge_build.ports import (
        ClientCertificate,
        Engine,
        Guests,
        StatementSigner,
        StatementVerifier,
    )
    from driverforge_build.publish.upload import Publisher
    from driverforge_mirror.copying.tide import Tide
    from driverforge_mirror.yamltext import Read
    from driverforge_oci.client import RegistryClient
    from driverforge_oci.helpers import Logins
    from driverforge_oci.transport import Retrying, Transport

_SILENCE_S = 10.0
"""More than a pause of a registry at work, less than the 30 s that an answer is waited for."""


def engine(name: str = "docker", registry: Registry | None = None) -> Engine:
    """The engine of that name, its images in its own store; it may push to `registry`."""
    return engines(name, registry=registry)[0]


def engines(
    name: str, builders: Sequence[str] = (), *, keeps: bool = True, registry: Registry | None = None
) -> tuple[Engine, ...]:
    """One engine, or one for each of buildx's builders, which may push to `registry`.

    `keeps`: whether images go into the engine's store.
    """
    plain = registry.plain_hosts if registry else ()
    if name == "docker":
        from driverforge_build.engine.buildx import Buildx

        return tuple(
            Buildx(_logins(), builder=builder, keeps=keeps, plain_http=plain) for builder in builders or ("",)
        )
    if name == "nop":
        from driverforge_build.engine.nop import Nop

        return (Nop(),)
    from driverforge_build.engine.buildah import Buildah

    return (Buildah(name, _logins(), plain_http=plain),)


def discovery(
    *, mirrors: Mapping[str, str], keyrings: Sequence[tuple[str, Path]], entitlement: Path | None
) -> Settings:
    """What a run of discovery is told of this moment and this machine, with what the user gave."""
    from driverforge_build.discover.entitlement import find_entitlement, find_logins
    from driverforge_build.discover.machine import read_machine
    from driverforge_build.discover.settings import Settings

    return Settings(
        now=datetime.now(timezone.utc),
        machine=read_machine(),
        mirrors=mirrors,
        keyrings=keyrings,
        entitlement=find_entitlement(entitlement),
        logins=find_logins(entitlement),
    )


def subscriptions(
    rows: Mapping[tuple[str, Arch], OsRow],
    *,
    mirrors: Mapping[str, str],
    entitlement: Path | None,
    own: bool,
) -> dict[str, Subscription]:
    """What builds are given of subscriptions, by OS and architecture: what is in the folder `entitlement`,
    else, if builds may have this machine's `own`, that.
    """
    from driverforge_build.discover.settings import Settings
    from driverforge_build.discover.subscription import check_readable, subscription

    if own or entitlement:
        settings = discovery(mirrors=mirrors, keyrings=(), entitlement=entitlement)
    else:
        settings = Settings(now=datetime.now(timezone.utc), mirrors=mirrors)
    if entitlement and settings.entitlement:
        check_readable(settings.entitlement)
    return {f"{system}-{arch}": subscription(row, arch, settings) for (system, arch), row in rows.items()}


def copying_downloads(cache_dir: Path | None, told: Told) -> Fetcher:
    """What reads the files of a copy that no registry has, into the cache; its pauses `told` hears of."""
    from driverforge_build.fetch.cache import Cache
    from driverforge_build.fetch.fetcher import Fetcher
    from driverforge_build.fetch.web import mirror_transport

    return Fetcher(Cache(cache_dir or default_cache()), mirror_transport(os.environ, told))


def guests(shells: Mapping[str, str]) -> Guests:
    """Guests under this machine's QEMU. `shells` maps an architecture to the file of a static busybox."""
    from driverforge_build.engine.guests import QemuGuests

    return QemuGuests({arch: Path(file) for arch, file in shells.items()})


def registry_client(*, as_json: bool = False, plain_http: Sequence[str] = ()) -> RegistryClient:
    """A client with the proxies and credentials of this environment, its pauses told on standard error.

    `plain_http`: hosts without TLS.
    """
    return _client(_telling(as_json=as_json), plain_http)


def asking_client(
    *, as_json: bool = False, attempts: int = 5, plain_http: Sequence[str] = ()
) -> RegistryClient:
    """As `registry_client`, for what a command can do without: a registry that is silent is asked once.

    A request whose connection breaks is made `attempts` times.
    """
    return _client(replace(_telling(as_json=as_json), attempts=attempts, silence=_SILENCE_S), plain_http)


def _telling(*, as_json: bool) -> Retrying:
    from driverforge_build.commands.shared.progress import Lines
    from driverforge_build.fetch.web import registry_transport

    return registry_transport(os.environ, _each_once(Lines(as_json=as_json).waiting))


def copying_client(told: Told, *, at_once: int, plain_http: Sequence[str] = ()) -> RegistryClient:
    """A client for one side of a copy: `at_once` transfers, whose pauses `told` hears of."""
    from driverforge_build.fetch.web import registry_transport

    return _client(registry_transport(os.environ, told, at_once=at_once), plain_http)


def sides(tide: Tide, told: Told) -> Callable[[Sequence[str]], RegistryClient]:
    """Makes a client for a side of a copy, given its hosts without TLS.

    The sides share none: each transfer holds a place on both.
    """

    def heard(why: str, seconds: float) -> None:
        tide.ebb()
        told(why, seconds)

    def client(plain_http: Sequence[str]) -> RegistryClient:
        return copying_client(heard, at_once=2 * tide.highest, plain_http=plain_http)

    return client


def _client(transport: Transport, plain_http: Sequence[str]) -> RegistryClient:
    from driverforge_oci.client import RegistryClient
    from driverforge_oci.session import Session

    return RegistryClient(Session(transport, _logins(), plain_http=plain_http))


def publisher(
    registry: Registry, engine: Engine, prepared: Prepared, *, as_json: bool, attest: Attest | None = None
) -> Publisher:
    """What brings the images of a plan to a registry, and there attaches what `attest` says."""
    from driverforge_build.publish.upload import Publisher

    client = registry_client(as_json=as_json, plain_http=registry.plain_hosts)
    return Publisher(
        registry=registry.place,
        engine=engine,
        client=client,
        given=prepared.given,
        family_of=prepared.family_of(),
        attaching=attaching(client, attest, prepared.given) if attest else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attest:
    """What the user said with --attest. `builder` and `revision` are '' where the environment may say it."""

    signer: Sequence[str] = ()
    image_signer: Sequence[str] = ()
    builder: str = ""
    revision: str = ""


def attaching(client: RegistryClient, attest: Attest, given: Given) -> Attaching:
    """What attaches SBOM, provenance and test results.

    Raises InputError where matrix or lock is gone, Unavailable where a signer is.
    """
    from driverforge_build.attest.attach import Attaching
    from driverforge_build.attest.ci import digests_of, pipeline
    from driverforge_build.engine.process import require_program
    from driverforge_build.engine.userprograms import CommandImageSigner, CommandSigner

    for option, words in (("--signer", attest.signer), ("--image-signer", attest.image_signer)):
        if words:
            require_program(words[0], option)
    said = pipeline(os.environ)
    origin = replace(
        said,
        builder=attest.builder or said.builder,
        revision=attest.revision or said.revision,
        files=digests_of(given),
    )
    return Attaching(
        client=client,
        origin=origin,
        signer=CommandSigner(argv=attest.signer) if attest.signer else None,
        image_signer=CommandImageSigner(argv=attest.image_signer) if attest.image_signer else None,
    )


def list_signer(argv: Sequence[str]) -> StatementSigner | None:
    """The program that signs an archive's list; None where the user named none."""
    if not argv:
        return None
    from driverforge_build.engine.process import require_program
    from driverforge_build.engine.userprograms import CommandSigner

    require_program(argv[0], "--signer")
    return CommandSigner(argv=argv)


def verifier(argv: Sequence[str]) -> StatementVerifier | None:
    """The program that knows whose signatures are to be trusted; None where the user named none."""
    if not argv:
        return None
    from driverforge_build.engine.userprograms import CommandVerifier

    return CommandVerifier(argv=argv)


def _logins() -> Logins:
    """Logins of docker's configuration, and of the helpers that it names."""
    from driverforge_build.engine.process import answer
    from driverforge_oci.dockerconfig import load_configuration
    from driverforge_oci.helpers import Logins

    return Logins(lambda: load_configuration(os.environ), answer)


def _each_once(tell: Callable[[str, float], object]) -> Callable[[str, float], None]:
    """Tells each pause once: a plan asks for several images at a time, and all of them wait about as long."""
    told: set[tuple[str, int]] = set()

    def once(why: str, seconds: float) -> None:
        if (about := (why, int(seconds).bit_length())) not in told:
            told.add(about)
            tell(why, seconds)

    return once


def lookup_in(
    registry: Registry | None, given: Given, *, as_json: bool = False, patient: bool = False
) -> LookupFor | None:
    """How a plan asks a registry for its images; None where the user named no registry.

    `patient`: what is built or written depends on the answers.
    """
    if registry is None:
        return None
    # it brings HTTP and templates along
    from driverforge_build.publish.lookup import image_lookup

    client = registry_client if patient else asking_client
    plain = registry.plain_hosts
    return lambda lock: image_lookup(client(as_json=as_json, plain_http=plain), registry.place, lock, given)


def default_cache() -> Path:
    """Where downloads, contexts and logs are kept unless the user says where."""
    from driverforge_build.fetch.cache import default_folder

    return default_folder()


def input_reader() -> Read:
    """Reads files, and what `LiveOrFile` put in a file's place."""
    from driverforge_build.engine import kubectl
    from driverforge_mirror.yamltext import read_bytes

    def read(path: Path) -> bytes:
        kind, _, resources = str(path).partition(":")
        return kubectl.get(resources) if kind == "live" and resources else read_bytes(path)

    return read


@contextmanager
def mirrors(cache_dir: Path | None, *, offline: bool, as_json: bool) -> Iterator[Fetcher]:
    """What reads mirrors while the block runs, its progress shown on standard error."""
    from driverforge_build.commands.shared.progress import shown_downloads
    from driverforge_build.fetch.cache import Cache
    from driverforge_build.fetch.fetcher import Fetcher

    with shown_downloads(as_json=as_json) as progress:
        transport = None
        certificates: dict[str, ClientCertificate] = {}
        if not offline:
            from driverforge_build.fetch.web import mirror_transport

            transport = mirror_transport(os.environ, progress.waiting, certificates)
        cache = Cache(cache_dir or default_cache())
        yield Fetcher(cache, transport, progress=progress, certificates=certificates)
