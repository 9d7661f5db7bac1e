"""Payload `image` on a real engine and a real registry: pinned by `lock`, built, and built in.

The driver image is a stand-in of NVIDIA's (support.samples.driverimage) upon Debian 12. Compiler and kernel
headers are real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.lock.file import load_lock
from driverforge_core.image import ImageFacts, ModuleSet
from support import cache
from support.machines.builderbench import BuilderBench
from support.machines.dockerregistry import registry as serve
from support.machines.engine import Engine
from support.samples.driverimage import push_stand_in
from support.skipping import provided

VERSION = "580.178.04"
JIT = f"debian12-amd64-{VERSION}-jit"
SOURCES = f"/usr/src/nvidia-{VERSION}"
MATRIX = """\
extends: builtin
keep: {systems: [debian12], branches: ["580"]}
systems:
  - id: debian12
    drivers: [{id: "580", payload: image, image: "REGISTRY/driver:{version}-{os}", MORE}]
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with provided(lambda: serve(tmp_path_factory.mktemp("registry"))) as address:
        yield address


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A registry folder with a driver image, and a matrix that builds upon it."""

    bench: BuilderBench
    image: str

    def driverforge(self, *words: str, check: bool = True) -> tuple[int, str]:
        done = self.bench.driverforge(*words, check=check, based=False)
        return done.returncode, done.stdout + done.stderr

    def lock(self, *more: str, check: bool = True) -> tuple[int, str]:
        words = ("--select", f"debian12-amd64-{VERSION}-*", "--cache-dir", str(cache.root() / "discovery"))
        return self.driverforge("lock", *words, *more, check=check)

    def build(self, cell: str, *, check: bool = True) -> dict[str, Any]:
        words = ("--select", cell, "--network", "host", "--json")
        done = self.bench.driverforge("build", *words, check=check, based=False)
        (built,) = json.loads(done.stdout)["cells"]
        return dict(built)

    def in_image(self, reference: str, script: str) -> str:
        return self.bench.in_image(reference, script)


def site(engine: Engine, base: str, folder: Path, registry: str, more: str = "archs: [amd64]") -> Site:
    folder.mkdir(exist_ok=True)
    text = MATRIX.replace("REGISTRY", registry).replace("MORE", more)
    (folder / "matrix.yaml").write_text(text)
    bench = BuilderBench(
        engine=engine, base=base, folder=folder, lock=folder / "lock.json", matrix=folder / "matrix.yaml"
    )
    return Site(bench=bench, image=f"{registry}/driver:{VERSION}-debian12")


def push_nvidias(made: Site, *, holds: str = VERSION, says: str = VERSION) -> None:
    """The stand-in of NVIDIA's image into the site's registry."""
    engine, base, folder = made.bench.engine, made.bench.base, made.bench.folder / "stand-in"
    push_stand_in(engine, base, folder, made.image, holds=holds, says=says)


@pytest.fixture(scope="module")
def nvidias(engine: Engine, bookworm: str, registry: str, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site that has NVIDIA's driver image, or what stands in for it, and has locked it."""
    made = site(engine, bookworm, tmp_path_factory.mktemp("site"), f"{registry}/nvidia")
    push_nvidias(made)
    made.lock()
    return made


@pytest.fixture(scope="module")
def kernels(nvidias: Site) -> tuple[str, str]:
    """Two kernels of one flavour that nothing stands against."""
    select = f"debian12-amd64-{VERSION}-6.1.*cloud-amd64"
    cells = json.loads(nvidias.driverforge("plan", "--json", "--select", select)[1])["cells"]
    found = [cell["cell"] for cell in cells if cell["verdict"] == "build"]
    if len(found) < 2:
        pytest.skip(f"the mirror has not two such kernels: {found}")
    return found[-1].removeprefix(JIT[:-3]), found[-2].removeprefix(JIT[:-3])


@pytest.fixture(scope="module")
def jit(nvidias: Site) -> Iterator[str]:
    """A JIT image upon the stand-in of NVIDIA's."""
    reference = nvidias.build(JIT)["reference"]
    yield reference
    nvidias.bench.forget(reference)


def test_the_lock_holds_the_images_digest_and_a_plan_builds(nvidias: Site) -> None:
    (target,) = load_lock(nvidias.bench.lock).targets.values()
    pin = target.images[VERSION]
    assert pin.reference == nvidias.image
    told = nvidias.driverforge("explain", JIT)[1]
    assert f"{nvidias.image}@{pin.digest}, which the driver comes from" in told
    assert f"{JIT}: build" in told


def test_the_driver_comes_out_of_the_image_and_the_entrypoint_is_ours(nvidias: Site, jit: str) -> None:
    arguments = nvidias.in_image(jit, "cat /usr/share/nvidia/installer-arguments").split()
    assert {"--silent", "--no-kernel-module", "--no-nouveau-check", "--no-rpms"} <= set(arguments)
    assert "a fixture" in nvidias.in_image(jit, "nvidia-smi")
    assert nvidias.in_image(jit, f"ls {SOURCES}").split() == ["kernel", "kernel-open"]
    assert nvidias.in_image(jit, f"ls /opt/driverforge/firmware/nvidia/{VERSION}").strip() == "gsp_tu10x.bin"
    facts = ImageFacts.from_json(nvidias.in_image(jit, "cat /opt/driverforge/image.json"))
    assert (facts.payload, facts.variant, set(facts.source_digests)) == ("image", "jit", set(facts.sources))
    assert "usage: nvidia-driver init|load" in nvidias.in_image(jit, "nvidia-driver init --x 2>&1 || true")
    assert nvidias.in_image(jit, "ls /usr/local/bin").split() == ["driverctl", "nvidia-driver"]
    packages = ["driverctl", "driverforge_core", "driverforge_driver", "driverforge_host", "driverforge_kube"]
    assert nvidias.in_image(jit, "ls /opt/driverforge/lib").split() == packages
    config = nvidias.bench.engine.docker("image", "inspect", "--format", "{{json .Config}}", jit).stdout
    assert (json.loads(config)["Entrypoint"], json.loads(config)["Cmd"]) == (["nvidia-driver"], ["init"])


@pytest.mark.full(reason="compiles in an image once more")
def test_modules_are_compiled_in_the_image_as_a_node_does_it(nvidias: Site, jit: str) -> None:
    (target,) = load_lock(nvidias.bench.lock).targets.values()
    # the base is configured with this suite alone
    kernel = next(
        one for one in target.kernels.values() if {two.suite for two in one.headers} == {"bookworm"}
    )
    build = f"driverctl build --kernel {kernel.release} --module-type open --output /out"
    script = f"{build} >&2; find /out -name '*.json' -exec cat {{}} +"
    done = nvidias.bench.engine.docker(
        "run", "--rm", "--network", "host", "--entrypoint", "sh", jit, "-ec", script
    )
    assert ModuleSet.from_json(done.stdout).kernel.text == kernel.release


@pytest.fixture(scope="module")
def precompiled(nvidias: Site, kernels: tuple[str, str]) -> Iterator[str]:
    """The image of the first kernel upon the stand-in of NVIDIA's."""
    reference = nvidias.build(f"{JIT[:-3]}{kernels[0]}")["reference"]
    yield reference
    nvidias.bench.forget(reference)


@pytest.mark.full(reason="compiles in an image once more")
def test_precompiled_modules_are_built_upon_nvidias_image(
    nvidias: Site, precompiled: str, kernels: tuple[str, str]
) -> None:
    sets = nvidias.in_image(precompiled, f"ls /opt/lib/modules/{kernels[0]}").split()
    assert sets == ["open", "proprietary"]
    facts = ImageFacts.from_json(nvidias.in_image(precompiled, "cat /opt/driverforge/image.json"))
    assert (facts.variant, [kernel.text for kernel in facts.kernels]) == ("precompiled", [kernels[0]])
    assert nvidias.in_image(precompiled, "ls /usr/src").strip() == ""
    assert "a fixture" in nvidias.in_image(precompiled, "nvidia-smi")


def push_ours(made: Site, reference: str) -> None:
    """An image that the engine built, as the driver image of a site."""
    made.bench.engine.docker("tag", reference, made.image)
    made.bench.engine.docker("push", "--quiet", made.image)
    made.bench.forget(made.image)


@pytest.mark.full(reason="builds two more images")
def test_images_of_ours_are_bases_too_and_one_that_moved_is_seen(
    nvidias: Site, jit: str, precompiled: str, kernels: tuple[str, str], registry: str
) -> None:
    folder, one_type = nvidias.bench.folder / "ours", "module_types: [open]"
    made = site(nvidias.bench.engine, nvidias.bench.base, folder, f"{registry}/ours", one_type)
    push_ours(made, jit)
    made.lock()
    hybrid = made.build(f"{JIT[:-3]}{kernels[1]}")["reference"]
    facts = ImageFacts.from_json(made.in_image(hybrid, "cat /opt/driverforge/image.json"))
    assert (facts.variant, [kernel.text for kernel in facts.kernels]) == ("jit", [kernels[1]])
    assert made.in_image(hybrid, f"ls {SOURCES}").split() == ["kernel", "kernel-open"]
    assert made.in_image(hybrid, "driverctl --version") == made.in_image(jit, "driverctl --version")
    made.bench.forget(hybrid)
    push_ours(made, precompiled)
    status, told = made.lock("--check", check=False)
    assert (status, f"{VERSION}: driver image {made.image}@" in told) == (1, True), told
    made.lock()
    more = made.build(f"{JIT[:-3]}{kernels[1]}")["reference"]
    facts = ImageFacts.from_json(made.in_image(more, "cat /opt/driverforge/image.json"))
    assert (facts.variant, {kernel.text for kernel in facts.kernels}) == ("precompiled", set(kernels))
    assert set(made.in_image(more, "ls /opt/lib/modules").split()) == set(kernels)
    made.bench.forget(more)


def test_an_image_of_another_driver_is_not_pinned_and_the_cell_unknown(nvidias: Site, registry: str) -> None:
    made = site(nvidias.bench.engine, nvidias.bench.base, nvidias.bench.folder / "other", f"{registry}/other")
    push_nvidias(made, holds="580.65.06", says="580.65.06")
    told = made.lock()[1]
    assert f"driver image {made.image} is not pinned: it holds driver 580.65.06" in told
    assert "to run: driverforge lock" in made.driverforge("explain", JIT)[1]


def test_an_image_that_claims_a_driver_and_lacks_it_says_where_it_was_looked_for(
    nvidias: Site, registry: str
) -> None:
    made = site(nvidias.bench.engine, nvidias.bench.base, nvidias.bench.folder / "liar", f"{registry}/liar")
    push_nvidias(made, holds="580.65.06", says=VERSION)
    made.lock()
    error = "\n".join(made.build(JIT, check=False)["error"]["details"])
    assert f"the base image has no driver {VERSION} that an image can be made of" in error
    assert f"looked at: /drivers/NVIDIA-Linux-x86_64-{VERSION}.run (NVIDIA's images)" in error
    assert "there is: /drivers/NVIDIA-Linux-x86_64-580.65.06.run" in error
