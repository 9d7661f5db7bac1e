"""`driverforge build` on a real engine: Debian's own packages and headers, a driver in miniature, a site's proxy, mirror and authorities.

What is built once here is looked at by all tests of this module.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from driverforge_build import lock as locks
from driverforge_build.lock import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan import all_cells, make_plan
from driverforge_build.render.bake import target_name
from driverforge_build.verdict import Judge
from driverforge_core.errors import DriverforgeError
from driverforge_core.image import ImageFacts, ModuleSet
from support import cache
from support.aptrepo import Deb
from support.engine import Engine
from support.process import run
from support.tinydriver import DRIVER, MIRROR_LOGIN, PROXY_LOGIN, SUITE, Site, publish, site, tiny_lock

ROOT = Path(__file__).parents[2]
JIT = f"debian12-amd64-{DRIVER}-jit"
FLAVOUR = "cloud-amd64"


@dataclass(frozen=True, slots=True)
class Bench:
    """What a test needs to call `driverforge` against the engine."""

    engine: Engine
    base: str
    folder: Path
    lock: Lock
    site: Site

    def driverforge(self, *words: str | Path, check: bool = True, lock: Lock | None = None) -> subprocess.CompletedProcess[str]:
        path = self.folder / "driverforge.lock.json"
        path.write_text(locks.dump(lock or self.lock))
        environment = {
            **os.environ,
            **self.engine.environment(),
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("builder", "entrypoints")),
            "HTTP_PROXY": self.site.proxy,
            "DRIVERFORGE_CACHE": str(self.folder / "cache"),
        }
        command = [sys.executable, "-c", "from driverforge_build.cli import main; main()", *map(str, words)]
        done = subprocess.run(
            [*command, "--lock", str(path), "--base", f"debian12={self.base}"], env=environment, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def build(self, *cells: str, check: bool = True, lock: Lock | None = None) -> subprocess.CompletedProcess[str]:
        select = [word for cell in cells for word in ("--select", cell)]
        serving = ["--mirror", f"debian12/{SUITE}={self.site.mirror}", "--ca", self.site.authorities]
        return self.driverforge("build", *select, *serving, "--network", "host", "--json", check=check, lock=lock)


@pytest.fixture(scope="module")
def bench(engine: Engine, bookworm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("build")
    (folder / "mirror").mkdir()
    with site(folder / "mirror", folder / "site") as serving:
        yield Bench(engine, bookworm, folder, tiny_lock(real_lock(folder), folder / "mirror"), serving)


def real_lock(folder: Path) -> Lock:
    """The pins of today's Debian 12, by the program's own discovery."""
    path = folder / "real.lock.json"
    command = [sys.executable, "-c", "from driverforge_build.cli import main; main()", "lock", "--select", "debian12-amd64-535*"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("builder", "entrypoints"))}
    try:
        run(*command, "--keep-going", "--lock", path, "--cache-dir", cache.root() / "discovery", env=environment)
    except DriverforgeError as error:
        pytest.skip(f"no Debian mirror to lock from: {error.details[-1]}")
    return locks.load(path)


@pytest.fixture(scope="module")
def kernels(bench: Bench) -> tuple[str, str]:
    """The ids of two precompiled cells of one flavour that nothing stands against."""
    matrix = load_matrix()
    from datetime import datetime, timezone

    plan = make_plan(all_cells(matrix, bench.lock), Judge(matrix, bench.lock, today=datetime.now(timezone.utc).date()))
    found = [cell.key for cell in plan.to_build() if cell.kernel and cell.os.id == "debian12" and cell.kernel.flavour == FLAVOUR]
    if len(found) < 2:
        pytest.skip(f"the mirror has not two kernels that {DRIVER} builds for: {found}")
    return found[0], found[1]


@pytest.fixture(scope="module")
def built(bench: Bench, kernels: tuple[str, str]) -> dict[str, dict[str, Any]]:
    """The build report of a JIT image and two precompiled ones, by cell."""
    done = bench.build(JIT, *kernels)
    return {cell["cell"]: cell for cell in json.loads(done.stdout)["cells"]}


def in_image(bench: Bench, reference: str, script: str) -> str:
    return bench.engine.docker("run", "--rm", "--network", "none", "--entrypoint", "sh", reference, "-ec", script).stdout


def test_all_are_built_and_the_report_says_what_they_are(built: dict[str, dict[str, Any]], kernels: tuple[str, str]) -> None:
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
    facts = ImageFacts.from_json(in_image(bench, reference, "cat /opt/driverforge/image.json"))
    assert (facts.variant, [str(kernel) for kernel in facts.kernels]) == ("precompiled", [release])
    for kind in ("open", "proprietary"):
        described = ModuleSet.from_json(in_image(bench, reference, f"cat /opt/lib/modules/{release}/{kind}/module-set.json"))
        assert sorted(described.modules) == ["nvidia-modeset.ko", "nvidia-uvm.ko", "nvidia.ko"]
    sums = "".join(f"{digest.removeprefix('sha256:')}  {name}\n" for name, digest in described.modules.items())
    assert "FAILED" not in in_image(bench, reference, f"cd /opt/lib/modules/{release}/proprietary && echo '{sums}' | sha256sum --check")
    assert in_image(bench, reference, "ls /usr/src") == ""


def test_jit_image_has_sources_tool_chain_and_firmware(bench: Bench, built: dict[str, dict[str, Any]]) -> None:
    reference = built[JIT]["reference"]
    assert in_image(bench, reference, f"ls /usr/src/nvidia-{DRIVER}").split() == ["kernel", "kernel-open"]
    assert in_image(bench, reference, "which gcc-12 make driverctl nvidia-driver").count("\n") == 4
    assert in_image(bench, reference, f"ls /opt/driverforge/firmware/nvidia/{DRIVER}").split() == ["gsp_tu10x.bin"]
    assert in_image(bench, reference, "driverctl --version").startswith("driverctl ")


def test_configuration_is_what_nvidias_operator_expects(bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]) -> None:
    for cell in (JIT, kernels[0]):
        (image,) = json.loads(bench.engine.docker("image", "inspect", built[cell]["reference"]).stdout)
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
        "cd / && find etc/apt usr/share/keyrings -type f | sort | xargs sha256sum; ls -A /var/lib/apt/lists/*_dists_* 2>/dev/null || true"
    )
    before = in_image(bench, bench.base, look)
    for cell in (JIT, kernels[0]):
        assert in_image(bench, built[cell]["reference"], look) == before
        left = "ls -A /tmp /run/secrets /run/driverforge /var/cache/driverforge /usr/sbin/policy-rc.d 2>/dev/null || true"
        assert set(in_image(bench, built[cell]["reference"], left).split()) <= {"/tmp:", "/run/secrets:", "/run/driverforge:"}


def test_site_was_used_and_nothing_of_it_is_in_any_layer(bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]) -> None:
    """Every blob of the three images, configurations and histories included, is searched for passwords and the site's certificate."""
    assert any(path.endswith("/nvidia-smi_535.261.03-1_amd64.deb") for path in bench.site.mirrored), (
        "the mirror's login and certificate worked"
    )
    certificate = bench.site.authorities.read_bytes().splitlines()[1]
    secrets = {name: word.encode() for name, word in (("mirror", MIRROR_LOGIN[1]), ("proxy", PROXY_LOGIN[1]))} | {"ca": certificate}
    for cell in (JIT, *kernels):
        saved = bench.folder / "saved.tar"
        bench.engine.docker("image", "save", "--output", saved, built[cell]["reference"])
        for name, data in blobs(saved):
            found = [what for what, word in secrets.items() if word in data]
            assert not found, f"{cell}: {found} in {name}"
        history = bench.engine.docker("history", "--no-trunc", built[cell]["reference"]).stdout
        assert not [what for what, word in secrets.items() if word.decode() in history]


def blobs(saved: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(saved) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None:
                data = stream.read()
                yield member.name, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_http_went_through_the_proxy(bench: Bench, built: dict[str, dict[str, Any]]) -> None:
    configured = in_image(bench, bench.base, "apt-get update --print-uris")
    if "'http://" not in configured:
        pytest.skip("this machine's mirror speaks https, which is tunnelled")
    assert any("/pool/main/" in address for address in bench.site.proxied)


def test_a_second_build_takes_everything_from_the_cache(bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]) -> None:
    asked = len(bench.site.mirrored) + len(bench.site.proxied)
    again = {cell["cell"]: cell for cell in json.loads(bench.build(JIT, *kernels).stdout)["cells"]}
    assert {cell: again[cell]["id"] for cell in again} == {cell: built[cell]["id"] for cell in built}
    assert len(bench.site.mirrored) + len(bench.site.proxied) == asked


def test_people_can_build_the_generated_folder_themselves(bench: Bench, built: dict[str, dict[str, Any]], kernels: tuple[str, str]) -> None:
    """Plain `docker buildx build` of one cell's folder, without the bake file: the same image but for the labels that bake adds."""
    output = bench.folder / "generated"
    bench.driverforge("generate", "--select", kernels[0], "--output", output)
    epoch = json.loads((output / "docker-bake.json").read_text())["target"][target_name(kernels[0])]["args"]["SOURCE_DATE_EPOCH"]
    words = ["buildx", "build", "--quiet", "--load", "--network", "host", "--tag", "driverforge-test:by-hand", str(output / kernels[0])]
    bench.engine.docker(*words, "--provenance=false", "--build-arg", f"SOURCE_DATE_EPOCH={epoch}")
    (image,) = json.loads(bench.engine.docker("image", "inspect", "driverforge-test:by-hand").stdout)
    assert image["RootFS"]["Layers"] == [layer["digest"] for layer in built[kernels[0]]["layers"]]


def test_a_package_that_is_not_the_pinned_one_fails_the_build_with_its_name(bench: Bench) -> None:
    forged = replace(publish(Deb(name="nvidia-smi", version="535.261.03-9"), bench.folder / "mirror"), sha256="0" * 64)
    target = bench.lock.targets["debian12-amd64"]
    roles = {**target.drivers[DRIVER], "userspace": (forged,)}
    done = bench.build(JIT, check=False, lock=bench.lock.with_targets([replace(target, drivers={DRIVER: roles})]))
    assert done.returncode == 1
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["result"] == "failed"
    told = "\n".join(cell["error"]["details"])
    assert "nvidia-smi_535.261.03-9_amd64.deb" in told
    assert "Hash Sum mismatch" in Path(cell["log"]).read_text()
    assert MIRROR_LOGIN[1] not in Path(cell["log"]).read_text()
