"""`driverforge build` on a real engine: Debian's own packages and headers, a driver in miniature, a site's
proxy, mirror and authorities.

What is built once here is looked at by all tests of this module.
"""

from __future__ import annotations

import gzip
import json
import secrets
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.rows import all_cells, make_plan
from driverforge_build.render.bake import target_name
from driverforge_build.verdict.decide import Judge
from driverforge_core.image import ImageFacts, ModuleSet
from support.machines.builderbench import BuilderBench, real_lock
from support.machines.engine import Engine
from support.samples.aptrepo import Deb
from support.samples.tinydriver import (
    DRIVER,
    MIRROR_LOGIN,
    PLAIN_MIRROR,
    PLAIN_SUITE,
    PROXY_LOGIN,
    SUITE,
    Site,
    publish,
    site,
    tiny_lock,
)

JIT = f"debian12-amd64-{DRIVER}-jit"
FLAVOUR = "cloud-amd64"
BY_HAND = "driverforge-test:by-hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """`driverforge` against the engine, and the site whose mirror and proxy the builds use."""

    builder: BuilderBench
    pins: Lock
    site: Site

    def build(
        self, *cells: str, check: bool = True, pins: Lock | None = None, more: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        self.builder.lock.write_text(dump_lock(pins or self.pins))
        select = [word for cell in cells for word in ("--select", cell)]
        mirrors = [f"debian12/{SUITE}={self.site.mirror}", f"debian12/{PLAIN_SUITE}={PLAIN_MIRROR}"]
        serving = [
            *(word for mirror in mirrors for word in ("--mirror", mirror)),
            "--ca",
            self.site.authorities,
        ]
        return self.builder.driverforge(
            "build", *select, *serving, "--network", "host", "--json", *more, check=check
        )


@pytest.fixture(scope="module")
def bench(engine: Engine, bookworm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("build")
    (folder / "mirror").mkdir()
    with site(folder / "mirror", folder / "site") as serving:
        builder = BuilderBench(
            engine=engine,
            base=bookworm,
            folder=folder,
            lock=folder / "lock.json",
            environment={"HTTP_PROXY": serving.proxy},
        )
        yield Bench(
            builder=builder,
            pins=tiny_lock(real_lock(), folder / "mirror", salt=secrets.token_hex(8)),
            site=serving,
        )


@pytest.fixture(scope="module")
def kernels(bench: Bench) -> tuple[str, str]:
    """The ids of two precompiled cells of one flavour that nothing stands against."""
    matrix = load_matrix()
    plan = make_plan(
        all_cells(matrix, bench.pins), Judge(matrix, bench.pins, today=datetime.now(timezone.utc).date())
    )
    found = [
        cell.key
        for cell in plan.to_build()
        if cell.kernel and cell.os.id == "debian12" and cell.kernel.flavour == FLAVOUR
    ]
    if len(found) < 2:
        pytest.skip(f"the mirror has not two kernels that {DRIVER} builds for: {found}")
    return found[0], found[1]


@pytest.fixture(scope="module")
def built(bench: Bench, kernels: tuple[str, str]) -> Iterator[dict[str, dict[str, Any]]]:
    """The build report of a JIT image and two precompiled ones, by cell."""
    done = bench.build(JIT, *kernels)
    report = {cell["cell"]: cell for cell in json.loads(done.stdout)["cells"]}
    yield report
    bench.builder.forget(BY_HAND, *(cell["reference"] for cell in report.values()))


def test_all_are_built_and_the_report_says_what_they_are(
    built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    assert {cell["result"] for cell in built.values()} == {"built"}
    for cell in (JIT, *kernels):
        assert built[cell]["id"].startswith("sha256:")
        assert built[cell]["size"] > 0
        assert Path(built[cell]["log"]).is_file()
        assert built[cell]["reference"].endswith(built[cell]["inputs"][:12])


def test_images_of_two_kernels_share_every_layer_but_the_last(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    first, second = ([layer["digest"] for layer in built[cell]["layers"]] for cell in kernels)
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]
    assert built[kernels[0]]["layers"][-1]["created_by"].startswith("COPY /out/opt /opt")
    jit = [layer["digest"] for layer in built[JIT]["layers"]]
    assert jit[: len(first) - 1] == first[:-1], "the JIT image stands on the same user space"


def test_last_layer_holds_the_modules_and_what_the_image_says_of_itself(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    release = kernels[0].removeprefix(JIT.removesuffix("jit"))
    reference = built[kernels[0]]["reference"]
    facts = ImageFacts.from_json(bench.builder.in_image(reference, "cat /opt/driverforge/image.json"))
    assert (facts.variant, [str(kernel) for kernel in facts.kernels]) == ("precompiled", [release])
    for kind in ("open", "proprietary"):
        described = ModuleSet.from_json(
            bench.builder.in_image(reference, f"cat /opt/lib/modules/{release}/{kind}/module-set.json")
        )
        assert sorted(described.modules) == ["nvidia-modeset.ko", "nvidia-uvm.ko", "nvidia.ko"]
    sums = "".join(
        f"{digest.removeprefix('sha256:')}  {name}\n" for name, digest in described.modules.items()
    )
    script = f"cd /opt/lib/modules/{release}/proprietary && echo '{sums}' | sha256sum --check"
    assert "FAILED" not in bench.builder.in_image(reference, script)
    assert bench.builder.in_image(reference, "ls /usr/src") == ""


def test_jit_image_has_sources_tool_chain_and_firmware(
    bench: Bench, built: dict[str, dict[str, Any]]
) -> None:
    reference = built[JIT]["reference"]
    assert bench.builder.in_image(reference, f"ls /usr/src/nvidia-{DRIVER}").split() == [
        "kernel",
        "kernel-open",
    ]
    assert bench.builder.in_image(reference, "which gcc-12 make driverctl nvidia-driver").count("\n") == 4
    assert bench.builder.in_image(reference, f"ls /opt/driverforge/firmware/nvidia/{DRIVER}").split() == [
        "gsp_tu10x.bin"
    ]
    assert bench.builder.in_image(reference, "driverctl --version").startswith("driverctl ")


def test_configuration_is_what_nvidias_operator_expects(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    for cell in (JIT, kernels[0]):
        (image,) = json.loads(
            bench.builder.engine.docker("image", "inspect", built[cell]["reference"]).stdout
        )
        config = image["Config"]
        assert (config["Entrypoint"], config["Cmd"]) == (["nvidia-driver"], ["init"])
        environment = dict(entry.split("=", 1) for entry in config["Env"])
        assert environment["DRIVER_VERSION"] == DRIVER
        assert environment["DRIVER_BRANCH"] == "535"
        assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert config["Labels"]["io.driverforge.cell"] == cell
        assert config["Labels"]["io.driverforge.inputs"] == built[cell]["inputs"]


def test_package_configuration_is_the_bases_and_nothing_of_the_build_is_left(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    look = (
        "cd / && find etc/apt usr/share/keyrings -type f | sort | xargs sha256sum; ls -A "
        "/var/lib/apt/lists/*_dists_* 2>/dev/null || true"
    )
    before = bench.builder.in_image(bench.builder.base, look)
    for cell in (JIT, kernels[0]):
        assert bench.builder.in_image(built[cell]["reference"], look) == before
        left = (
            "ls -A /tmp /run/secrets /run/driverforge /var/cache/driverforge /usr/sbin/policy-rc.d "
            "2>/dev/null || true"
        )
        assert set(bench.builder.in_image(built[cell]["reference"], left).split()) <= {
            "/tmp:",
            "/run/secrets:",
            "/run/driverforge:",
        }


def test_site_was_used_and_nothing_of_it_is_in_any_layer(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    """Every blob of the three images, configurations and histories included, is searched for passwords and
    the site's certificate.
    """
    assert any(path.endswith("/nvidia-smi_535.261.03-1_amd64.deb") for path in bench.site.mirrored), (
        "the mirror's login and certificate worked"
    )
    certificate = bench.site.authorities.read_bytes().splitlines()[1]
    words = {
        name: word.encode() for name, word in (("mirror", MIRROR_LOGIN[1]), ("proxy", PROXY_LOGIN[1]))
    } | {"ca": certificate}
    for cell in (JIT, *kernels):
        saved = bench.builder.folder / "saved.tar"
        bench.builder.engine.docker("image", "save", "--output", saved, built[cell]["reference"])
        for name, data in blobs(saved):
            found = [what for what, word in words.items() if word in data]
            assert not found, f"{cell}: {found} in {name}"
        history = bench.builder.engine.docker("history", "--no-trunc", built[cell]["reference"]).stdout
        assert not [what for what, word in words.items() if word.decode() in history]


def blobs(saved: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(saved) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None:
                data = stream.read()
                yield member.name, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_http_went_through_the_proxy_and_https_did_not(
    bench: Bench, built: dict[str, dict[str, Any]]
) -> None:
    assert f"{PLAIN_MIRROR}/pool/firmware-nvidia-gsp_{DRIVER}-1_amd64.deb" in bench.site.proxied
    assert not any("nvidia-smi" in address for address in bench.site.proxied)


def test_a_second_build_takes_everything_from_the_cache(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    asked = len(bench.site.mirrored) + len(bench.site.proxied)
    again = {cell["cell"]: cell for cell in json.loads(bench.build(JIT, *kernels).stdout)["cells"]}
    assert {cell: again[cell]["id"] for cell in again} == {cell: built[cell]["id"] for cell in built}
    assert len(bench.site.mirrored) + len(bench.site.proxied) == asked


@pytest.mark.full(reason="all steps of two images once more")
def test_a_build_that_nothing_is_known_of_makes_the_same_images(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    """As on another machine: every step runs again, at another time."""
    again = json.loads(bench.build(JIT, kernels[0], more=("--no-cache", "--no-compile-cache")).stdout)[
        "cells"
    ]
    assert {cell["cell"]: cell["layers"] for cell in again} == {
        cell["cell"]: built[cell["cell"]]["layers"] for cell in again
    }
    assert {cell["id"] for cell in again} == {built[cell]["id"] for cell in (JIT, kernels[0])}


def test_people_can_build_the_generated_folder_themselves(
    bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]
) -> None:
    """Plain `docker buildx build` of one cell's folder, without the bake file: the same image but for the
    labels that bake adds.
    """
    output = bench.builder.folder / "generated"
    bench.builder.driverforge("generate", "--select", kernels[0], "--output", output)
    epoch = json.loads((output / "docker-bake.json").read_text())["target"][target_name(kernels[0])]["args"][
        "SOURCE_DATE_EPOCH"
    ]
    words = [
        "buildx",
        "build",
        "--quiet",
        "--load",
        "--network",
        "host",
        "--tag",
        BY_HAND,
        str(output / kernels[0]),
    ]
    bench.builder.engine.docker(*words, "--provenance=false", "--build-arg", f"SOURCE_DATE_EPOCH={epoch}")
    (image,) = json.loads(bench.builder.engine.docker("image", "inspect", BY_HAND).stdout)
    assert image["RootFS"]["Layers"] == [layer["digest"] for layer in built[kernels[0]]["layers"]]


def test_a_package_that_is_not_the_pinned_one_fails_the_build_with_its_name(bench: Bench) -> None:
    forged = replace(
        publish(Deb(name="nvidia-smi", version="535.261.03-9"), bench.builder.folder / "mirror"),
        sha256="0" * 64,
    )
    target = bench.pins.targets["debian12-amd64"]
    roles = {**target.drivers[DRIVER], "userspace": (forged,)}
    done = bench.build(
        JIT, check=False, pins=bench.pins.with_targets([replace(target, drivers={DRIVER: roles})])
    )
    assert done.returncode == 1
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["result"] == "failed"
    told = "\n".join(cell["error"]["details"])
    assert "nvidia-smi_535.261.03-9_amd64.deb" in told
    assert "Hash Sum mismatch" in Path(cell["log"]).read_text()
    assert MIRROR_LOGIN[1] not in Path(cell["log"]).read_text()
