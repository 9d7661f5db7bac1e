"""Builds by others than the docker engine, for real: a farm of BuildKit daemons, buildah, podman.

The Dockerfiles stand in for ours: the same stages and mounts over busybox, so that no mirror is needed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import BuildOptions, Given
from driverforge_build.app.build import BuildRequest, build
from driverforge_build.app.runner import CellReport, Result
from driverforge_build.engine.buildah import Buildah
from driverforge_build.engine.buildx import Buildx
from driverforge_build.fetch.web import registry_transport
from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix import load_matrix
from driverforge_build.publish.bases import WantedBase, find_bases
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.bake import immutable_tag_of, repository_of
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.files import ContextFile
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import NotPermitted
from driverforge_oci.auth import Login
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import labels
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.machines import builders, dockerregistry, registry
from support.machines.builderbench import BuilderBench, real_lock
from support.machines.engine import Engine
from support.process import missing
from support.samples.synthetic import all_cells, synthetic_lock
from support.samples.tinydriver import DRIVER, PLAIN_MIRROR, PLAIN_SUITE, SUITE, site, tiny_lock
from support.skipping import provided

pytestmark = [
    pytest.mark.full("two minutes of compiling for each program that is not installed"),
    pytest.mark.skipif(
        bool(missing("docker-registry", "/bin/busybox")), reason="no docker-registry, or no busybox"
    ),
]
daemonless = pytest.mark.parametrize("program", ["buildah", "podman"])
MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
KEYS = (
    "debian12-amd64-535.261.03-jit",
    "debian12-amd64-535.261.03-6.1.0-50-cloud-amd64",
    "debian12-amd64-535.261.03-6.12.95+deb12-cloud-amd64",
)
STAGES = """\
FROM scratch AS userspace
COPY --link --chmod=755 busybox /bin/busybox
FROM userspace AS jit
RUN --mount=type=bind,source=pins,target=/run/pins \\
    --mount=type=cache,id=driverforge-test,target=/var/cache/driverforge,sharing=locked \\
    --mount=type=secret,id=ca --mount=type=secret,id=mirror \\
    ["/bin/busybox", "sh", "-c", "/bin/busybox cat /run/secrets/ca >/dev/null && /bin/busybox ls /run/pins"]
"""
MODULES = """\
FROM jit AS modules
COPY --link precompiled/ /out/
FROM userspace AS precompiled
COPY --link --from=modules /out/opt /opt
"""


def context(key: str) -> BuildContext:
    """A cell's context with the same stages, and what goes into them in miniature."""
    (image,) = image_specs([CELLS[key]], LOCK)
    whole = context_of(image, resources.templates())
    text = STAGES + (MODULES if image.kernel else "")
    kept = {
        path: entry
        for path, entry in whole.entries.items()
        if path.startswith(("pins/", "jit/", "precompiled/"))
    }
    own = {
        "Dockerfile": ContextFile(content=text.encode()),
        "busybox": ContextFile(content=Path("/bin/busybox").read_bytes(), executable=True),
    }
    return replace(whole, entries=kept | own)


def client() -> RegistryClient:
    return RegistryClient(Session(registry_transport({}, lambda *_: None)))


def publisher(address: str, engine: Buildx | Buildah) -> Publisher:
    return Publisher(registry=f"{address}/site", engine=engine, client=client(), given=Given())


def immutable_reference(made: BuildContext, registry: str) -> Reference:
    repository = Reference.parse(repository_of(registry, made.image.repository))
    return repository.with_tag(immutable_tag_of(made))


def request(folder: Path) -> BuildRequest:
    authorities = folder / "ca.pem"
    authorities.write_text("a site's authorities\n")
    return BuildRequest(folder=folder / "work", options=BuildOptions(ca=authorities))


def display(_: Sequence[str]) -> object:
    return nullcontext(lambda *_: None)


@contextmanager
def farm(engine: Engine, *names: str) -> Iterator[None]:
    """Builders of these names, a BuildKit daemon each."""
    if not names:
        yield
        return
    first, *others = names
    with builders.buildkitd() as address:
        engine.docker("buildx", "create", "--name", first, "--driver", "remote", address)
        try:
            with farm(engine, *others):
                yield
        finally:
            engine.docker("buildx", "rm", first)


def check_pushed(address: str, reports: Sequence[CellReport], contexts: Sequence[BuildContext]) -> None:
    assert [report.error for report in reports] == [None] * len(contexts)
    for report, made in zip(reports, contexts, strict=True):
        remote = immutable_reference(made, f"{address}/site")
        assert report.result is Result.BUILT
        assert report.image is not None
        image = client().resolve(remote, "linux/amd64")
        assert labels(client(), remote, "linux/amd64")["io.driverforge.inputs"] == made.inputs
        alias = remote.with_tag(made.image.alias_tag)
        assert client().resolve(alias, "linux/amd64").digest == image.digest


def test_two_builders_push_their_shares_and_meet_in_the_registry(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)
    names = tuple(f"driverforge-{secrets.token_hex(4)}" for _ in range(2))
    contexts = tuple(context(key) for key in KEYS)
    provided(lambda: builders.gobuild.programs(builders.BUILDKITD))
    with dockerregistry.registry(tmp_path / "registry") as address, farm(engine, *names):
        engines = [Buildx(builder=name, keeps=False) for name in names]
        assert [one.check().rpartition(", ")[2] for one in engines] == [
            f"builder {name} (remote)" for name in names
        ]
        to = publisher(address, engines[0])
        reports = build(request(tmp_path), contexts, {}, engines, display, publisher=to, by_builders=True)
        check_pushed(address, reports, contexts)
        told = [report.log.read_text() for report in reports]
        assert [sum(f'building with "{name}"' in log for log in told) for name in names] == [1, 2]
        _, *kernels = (
            client().resolve(Reference.parse(report.reference), "linux/amd64") for report in reports
        )
        first, second = kernels
        assert [layer.digest for layer in first.layers[:-1]] == [layer.digest for layer in second.layers[:-1]]


def test_a_builder_loads_into_the_engine_what_is_not_pushed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)
    builder, made = f"driverforge-{secrets.token_hex(4)}", context(KEYS[1])
    provided(lambda: builders.gobuild.programs(builders.BUILDKITD))
    with farm(engine, builder):
        (report,) = build(request(tmp_path), (made,), {}, [Buildx(builder=builder)], display)
    try:
        assert report.image is not None
        assert report.image.labels["io.driverforge.inputs"] == made.inputs
    finally:
        engine.docker("image", "rm", "--force", report.reference, check=False)


@daemonless
def test_without_a_daemon_the_same_folders_are_built_and_pushed(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = provided(lambda: builders.daemonless(program, tmp_path))
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    engine = Buildah(program)
    assert engine.check().startswith(f"{program} ")
    contexts = (context(KEYS[0]), context(KEYS[1]))
    asked = replace(request(tmp_path), network="host")
    reports = build(asked, contexts, {}, [engine], display)
    assert [report.error for report in reports] == [None, None]
    for report, made in zip(reports, contexts, strict=True):
        assert report.image is not None
        assert report.image.labels["io.driverforge.inputs"] == made.inputs
        assert report.image.size > 1_000_000
    assert reports[1].image is not None
    assert reports[0].image is not None
    assert reports[0].image.layers[0] == reports[1].image.layers[0], "one user space"
    with dockerregistry.registry(tmp_path / "registry") as address:
        remote = immutable_reference(contexts[1], f"{address}/site")
        engine.push(reports[1].reference, str(remote), lambda _: None)
        assert labels(client(), remote, "linux/amd64")["io.driverforge.inputs"] == contexts[1].inputs
    assert engine.inspect("localhost/driverforge/driver:none") is None


@daemonless
def test_without_a_daemon_a_push_has_the_login_that_it_is_given(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = provided(lambda: builders.daemonless(program, tmp_path))
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    made = context(KEYS[0])
    login = Login(user="ci", password="correct hörse")
    known = RegistryClient(Session(registry_transport({}, lambda *_: None), lambda *_: login))
    asked = replace(request(tmp_path), network="host")
    (report,) = build(asked, (made,), {}, [Buildah(program)], display)
    with registry.serve(tmp_path / "registry", users={"ci": "correct hörse"}) as closed:
        remote = immutable_reference(made, f"{closed.address}/site")
        with pytest.raises(NotPermitted) as caught:
            Buildah(program).push(report.reference, str(remote), lambda _: None)
        assert caught.value.resolution == f"{program} login {closed.address}"
        Buildah(program, lambda *_: login).push(report.reference, str(remote), lambda _: None)
        assert labels(known, remote, "linux/amd64")["io.driverforge.inputs"] == made.inputs


def test_a_builder_makes_a_cell_on_the_base_that_the_lock_pins_and_pushes_it(
    engine: Engine, bookworm: str, tmp_path: Path
) -> None:
    """The command itself, with our own Dockerfile: Debian's packages and a driver in miniature."""
    name, cell = f"driverforge-{secrets.token_hex(4)}", f"debian12-amd64-{DRIVER}-jit"
    provided(lambda: builders.gobuild.programs(builders.BUILDKITD))
    (tmp_path / "mirror").mkdir()
    with (
        dockerregistry.registry(tmp_path / "registry") as address,
        farm(engine, name),
        site(tmp_path / "mirror", tmp_path / "site") as serving,
    ):
        base = f"{address}/debian:bookworm"
        engine.docker("tag", bookworm, base)
        engine.docker("push", "--quiet", base)
        engine.docker("image", "rm", base)
        pins = tiny_lock(real_lock(), tmp_path / "mirror", salt=secrets.token_hex(8))
        target = pins.targets["debian12-amd64"]
        wanted = WantedBase(target=target.key, arch="amd64", reference=base, locked=None)
        found = find_bases(client(), [wanted])[target.key].base
        assert found is not None
        lock = tmp_path / "lock.json"
        lock.write_text(dump_lock(pins.with_targets([replace(target, base=found)])))
        bench = BuilderBench(
            engine=engine,
            base=base,
            folder=tmp_path,
            lock=lock,
            environment={"HTTP_PROXY": serving.proxy},
        )
        mirrors = (f"debian12/{SUITE}={serving.mirror}", f"debian12/{PLAIN_SUITE}={PLAIN_MIRROR}")
        words = ["--builder", name, "--push", "--registry", f"{address}/site", "--ca", serving.authorities]
        words += [word for mirror in mirrors for word in ("--mirror", mirror)]
        built = json.loads(bench.driverforge("build", "--select", cell, "--json", *words).stdout)
        (told,) = built["cells"]
        assert (told["result"], told["reference"].startswith(f"{address}/site/driver:")) == ("built", True)
        there = labels(client(), Reference.parse(told["reference"]), "linux/amd64")
        assert there["org.opencontainers.image.base.digest"] == found.digest
        again = bench.driverforge("plan", "--select", cell, "--registry", f"{address}/site", "--json")
        assert [row["verdict"] for row in json.loads(again.stdout)["cells"]] == ["exists"]
