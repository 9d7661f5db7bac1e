"""What we attach, at registries of three kinds, and seen by other people's programs.

olareg has OCI's referrers API; Debian's docker-registry 2.8 and, with --full, distribution 3.1 have none.
regctl and skopeo read what we wrote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Barrier

import pytest

from driverforge_build.attest.attached import SLOTS
from driverforge_build.cli import run
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import Artifact, attach, referrers
from support.process import missing
from support.process import run as run_program
from support.samples.registrysite import AMD64, RegistrySite, site_at
from support.skipping import provided
from support.upstream.registries import REGCTL, program, serve_debians, serve_distribution, serve_olareg

Serve = Callable[[Path], AbstractContextManager[str]]


@pytest.fixture(
    scope="module",
    params=[
        serve_debians,
        # Debian's is of the same family, and older; this one has the clients of all clouds to compile
        pytest.param(serve_distribution, marks=pytest.mark.full(reason="compiles distribution 3")),
        serve_olareg,
    ],
    ids=lambda made: made.__name__,
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    serve: Serve = request.param
    serving = serve(tmp_path_factory.mktemp("registry") / "data")
    found = provided(serving.__enter__)
    try:
        yield found
    finally:
        serving.__exit__(None, None, None)


@pytest.fixture
def site(address: str, tmp_path: Path, request: pytest.FixtureRequest) -> RegistrySite:
    # a repository of its own for each test
    name = str(abs(hash(request.node.name)))
    return site_at(tmp_path, f"{address}/{name}")


def attest(site: RegistrySite) -> Reference:
    """Store an image, attach SBOM and provenance; the image by its digest."""
    place = Reference.parse(f"{site.registry}/driver@{site.store(AMD64)}")
    assert run(["push", *site.given[:-1], AMD64, "--engine", "nop", "--attest"]) == 0
    return place


def test_regctl_lists_and_reads_what_we_attached(site: RegistrySite) -> None:
    regctl = provided(lambda: program(REGCTL))
    host = site.registry.partition("/")[0]
    run_program(regctl, "registry", "set", "--tls", "disabled", host, env={"HOME": str(site.folder)})
    place = attest(site)
    ours = {one.digest: one for one in referrers(site.client, place)}
    words = ["artifact", "list", str(place), "--format", "{{jsonPretty .Descriptors}}"]
    listed = json.loads(run_program(regctl, *words, env={"HOME": str(site.folder)}).stdout)
    assert {one["digest"] for one in listed} == set(ours)
    assert {one["artifactType"] for one in listed} == {
        "application/vnd.cyclonedx+json",
        "application/vnd.in-toto+json",
    }
    words = ["artifact", "get", "--subject", str(place), "--filter-artifact-type"]
    bom = run_program(regctl, *words, "application/vnd.cyclonedx+json", env={"HOME": str(site.folder)})
    assert json.loads(bom.stdout)["bomFormat"] == "CycloneDX"


def test_skopeo_reads_an_artifacts_manifest(site: RegistrySite) -> None:
    if gone := missing("skopeo"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    place = attest(site)
    for one in referrers(site.client, place):
        where = f"docker://{place.with_digest(one.digest)}"
        raw = json.loads(run_program("skopeo", "inspect", "--raw", "--tls-verify=false", where).stdout)
        assert raw["subject"]["digest"] == place.digest


def test_what_others_attached_stays_and_is_shown(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    regctl = provided(lambda: program(REGCTL))
    home = {"HOME": str(site.folder)}
    host = site.registry.partition("/")[0]
    run_program(regctl, "registry", "set", "--tls", "disabled", host, env=home)
    place = Reference.parse(f"{site.registry}/driver@{site.store(AMD64)}")
    words = ["artifact", "put", "--artifact-type", "application/vnd.site.thing", "--subject", str(place)]
    run_program(regctl, *words, env=home, stdin="a thing")
    attest(site)
    capsys.readouterr()
    assert run(["attestations", str(place), "--json"]) == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    assert sorted(one["kind"] for one in image["attached"]) == ["other", "provenance", "sbom"]


def test_writers_of_one_image_at_the_same_time_lose_nothing(site: RegistrySite) -> None:
    for number in range(10):
        fresh = site_at(site.folder, f"{site.registry}/{number}")
        place = Reference.parse(f"{fresh.registry}/driver@{fresh.store(AMD64)}")
        ready = Barrier(len(SLOTS))

        def write(slot: str, place: Reference = place, ready: Barrier = ready) -> None:
            one = Artifact(media_type=f"application/vnd.site.{slot}", content=slot.encode(), slot=slot)
            ready.wait(timeout=30)
            attach(site.client, place, one, SLOTS)

        with ThreadPoolExecutor(len(SLOTS)) as pool:
            list(pool.map(write, SLOTS))
        if site.client.referrers(place) is not None:
            # olareg 0.1.2 itself loses one now and then (3 of 30 rounds); attached again it is there
            for slot in SLOTS:
                write(slot, ready=Barrier(1))
        # as a client sees it that knows no slots
        found = [one.artifact_type for one in referrers(site.client, place)]
        assert sorted(found) == sorted(f"application/vnd.site.{slot}" for slot in SLOTS)


def test_two_processes_attach_to_one_image(site: RegistrySite) -> None:
    place = Reference.parse(f"{site.registry}/driver@{site.store(AMD64)}")
    code = "import sys; from driverforge_build.cli import run; sys.exit(run(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "push", *site.given[:-1], AMD64, "--engine", "nop", "--attest"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: run_program(*words, env={"PYTHONPATH": ":".join(sys.path)}), range(2)))
    kinds = [dict(one.annotations)["io.driverforge.attests"] for one in referrers(site.client, place)]
    # the same SBOM of both; a provenance of each at most
    assert kinds.count("sbom") == 1
    assert 1 <= kinds.count("provenance") <= 2
