"""The operator's image, built by `driverforge` on a real engine from the locked wheels, and looked into."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build.attest.purl import python_purl
from driverforge_build.render.operator import wheel_of
from driverforge_core import __version__
from support.machines import operatorimage
from support.machines.builderbench import COMMAND, PACKAGES, BuilderBench
from support.machines.dockerregistry import registry as serve
from support.machines.emulation import Base
from support.machines.engine import Engine
from support.process import run
from support.skipping import provided

# as its pod runs in the cluster, and less: no network
CONFINED = ["--read-only", "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
OWN = {"driverforge_core", "driverforge_oci", "driverforge_kube", "driverforge_operator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    bench: BuilderBench
    reference: str
    arch: str

    def run(self, *words: str) -> str:
        return self.bench.engine.docker("run", "--rm", *CONFINED, self.reference, *words).stdout

    def look(self, script: str) -> list[str]:
        return self.bench.in_image(self.reference, script).splitlines()


@pytest.fixture(scope="module")
def built(engine: Engine, base: Base, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    provided(lambda: operatorimage.wheels(base.arch))
    folder = tmp_path_factory.mktemp("operator")
    bench, reference = operatorimage.build(engine, base.name, folder, base.arch)
    yield Built(bench=bench, reference=reference, arch=base.arch)
    bench.forget(reference)


def test_its_configuration(built: Built) -> None:
    (image,) = json.loads(built.bench.engine.docker("image", "inspect", built.reference).stdout)
    assert image["Config"]["User"] == "65532:65532"
    assert image["Config"]["Entrypoint"] == ["driverforge-operator"]
    assert image["Config"]["Labels"]["io.driverforge.cell"] == operatorimage.cell(built.arch)
    assert image["Architecture"] == built.arch


def test_it_runs_as_nobody_on_a_read_only_root_without_rights(built: Built) -> None:
    assert "explain" in built.run("--help")
    # models, YAML and the manifests of all operands: the compiled wheels work
    assert "clusterpolicies.nvidia.com" in built.run("crds")
    assert built.look("id -u; id -g") == ["65532", "65532"]


def test_it_holds_the_operator_and_the_locked_distributions_and_nothing_else(built: Built) -> None:
    found = built.look("ls /opt/driverforge/lib")
    distributions = {name for name in found if name.endswith(".dist-info")}
    assert distributions == {
        "-".join(wheel_of(file)) + ".dist-info" for file in operatorimage.locked(built.arch)
    }
    assert {name for name in found if name.startswith("driverforge")} == OWN
    assert built.look("ls /usr/local/bin") == ["driverforge-operator"]
    # none of what others need
    assert not {"jinja2", "docker", "rich", "tomlrt", "pynvml"} & set(found)


def test_it_has_no_compiler_and_nothing_that_installs_packages_of_python(built: Built) -> None:
    programs = "gcc cc c++ g++ clang tcc as ld make pip pip3 easy_install"
    assert built.look(f"for name in {programs}; do command -v $name || :; done") == []
    packages = built.look("dpkg-query --show --showformat '${Package}\n'")
    assert "python3" in packages
    assert not [name for name in packages if name.endswith("-dev")]


def test_its_files_are_roots_and_nobody_can_write_them(built: Built) -> None:
    assert built.look("find /opt /usr/local ! -user root -o ! -type l -perm /o+w") == []
    # what is run is what was compiled when the image was made
    assert built.look("find /opt/driverforge/lib/driverforge_operator -name 'cli*.pyc'")


def test_its_bill_of_materials_in_a_registry_is_what_it_holds(built: Built, tmp_path: Path) -> None:
    with provided(lambda: serve(tmp_path / "registry")) as address:
        wheels = f"{built.arch}={operatorimage.wheels(built.arch)}"
        words = ("--select", operatorimage.cell(built.arch), "--operator-wheels", wheels)
        built.bench.driverforge("push", *words, "--registry", f"{address}/nvidia", "--attest")
        image = f"{address}/nvidia/driverforge-operator:v{__version__}"
        asked = ("--require", "sbom", "--require", "provenance", "--output", tmp_path / "out")
        run(*COMMAND, "attestations", image, *asked, env=PACKAGES)
    (file,) = (tmp_path / "out").glob("sbom-*.json")
    parts = json.loads(file.read_text())["components"]
    told = {purl for part in parts if (purl := part.get("purl", "")).startswith("pkg:pypi/")}
    held = built.look(
        "python3 -I -c 'from importlib.metadata import distributions\n"
        'for one in distributions(path=["/opt/driverforge/lib"]): print(one.name, one.version)\''
    )
    assert told == {python_purl(*line.split()) for line in held} | {python_purl("driverforge", __version__)}
