"""The toolkit's image, built by `driverforge` on a real engine and run.

NVIDIA's Go programs are real where they can be had; libnvidia-container is not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix import load_matrix
from driverforge_build.render.files import digest_of, read_files
from support.machines.builderbench import BuilderBench, real_lock
from support.machines.emulation import Base
from support.machines.engine import Engine
from support.samples.toolkitsource import write_source
from support.skipping import provided
from support.upstream import gotools

(ROW,) = load_matrix().toolkits


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    bench: BuilderBench
    reference: str
    arch: str
    programs: Path  # folder of those that went into the image

    def run(self, script: str) -> str:
        return self.bench.in_image(self.reference, script)


@pytest.fixture(scope="module")
def built(engine: Engine, base: Base, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("toolkit")
    artifacts = folder / "artifacts"
    # scripts of the programs' names for another machine than this one
    (gotools.artifacts_or_doubles if base.arch == "amd64" else write_source)(artifacts / "deb")
    site = folder / "site.yaml"
    pin = digest_of(read_files(artifacts))
    site.write_text(f'extends: builtin\ntoolkits: [{{id: "{ROW.id}", sha256: {{{base.arch}: {pin}}}}}]\n')
    bench = BuilderBench(engine=engine, base=base.name, folder=folder, lock=folder / "lock.json", matrix=site)
    bench.lock.write_text(dump_lock(real_lock(arch=base.arch)))
    cell_id = f"toolkit-{ROW.id}-{base.arch}"
    done = bench.driverforge(
        "build",
        "--select",
        cell_id,
        "--toolkit-artifacts",
        f"{base.arch}={artifacts}",
        "--network",
        "host",
        "--json",
    )
    (cell,) = json.loads(done.stdout)["cells"]
    assert (cell["cell"], cell["result"]) == (cell_id, "built")
    yield Built(bench=bench, reference=cell["reference"], arch=base.arch, programs=artifacts / "deb/usr/bin")
    bench.forget(cell["reference"])


def test_its_configuration_is_that_of_nvidias_image(built: Built) -> None:
    (image,) = json.loads(built.bench.engine.docker("image", "inspect", built.reference).stdout)
    environment = dict(entry.split("=", 1) for entry in image["Config"]["Env"])
    assert image["Config"]["Entrypoint"] == ["nvidia-toolkit"]
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment["NVIDIA_DISABLE_REQUIRE"] == "true"
    assert image["Config"]["Labels"]["version"] == ROW.id
    assert image["Architecture"] == built.arch


def test_a_container_of_it_installs_nvidias_programs_and_they_read_our_config_toml(built: Built) -> None:
    if built.arch != "amd64":
        pytest.skip("it has scripts in the place of NVIDIA's programs")
    provided(gotools.programs)
    told = built.run(
        "NO_DAEMON=true NO_RUNTIME_CONFIG=true nvidia-toolkit 2>/dev/null; cd /usr/local/nvidia/toolkit; "
        "./nvidia-ctk --version;"
        "NVIDIA_CTK_CONFIG_FILE_PATH=$PWD/.config/nvidia-container-runtime/config.toml ./nvidia-ctk config; "
        "./nvidia-cdi-hook --version"
    )
    assert f"version {ROW.id}" in told
    assert 'path = "/usr/local/nvidia/toolkit/nvidia-container-cli"' in told


def test_a_second_start_writes_nothing_and_status_shows_it(built: Built) -> None:
    told = built.run(
        "driverctl toolkit install; driverctl toolkit install; driverctl toolkit gc; driverctl toolkit "
        "status;"
        "nvidia-toolkit --runtime=podman || echo $?"
    )
    assert "installed 99.88.77-" in told
    assert "nothing to do: 99.88.77-" in told
    assert "nothing to remove" in told
    assert "mode       auto" in told
    assert told.endswith("1\n")


@pytest.mark.parametrize(
    ("program", "option"), [("nvidia-validator", "--component"), ("driver-manager", "--node-name")]
)
def test_the_programs_of_other_operands_start_as_nobody_on_a_read_only_root(
    built: Built, program: str, option: str
) -> None:
    confined = ["--read-only", "--network", "none", "--cap-drop", "ALL", "--user", "65532:65532"]
    words = ("run", "--rm", *confined, "--entrypoint", program, built.reference, "--help")
    assert option in built.bench.engine.docker(*words).stdout


def test_nvidias_files_are_unmodified(built: Built) -> None:
    for name in gotools.GO_PROGRAMS:
        found = built.run(f"sha256sum </artifacts/deb/usr/bin/{name}").split()[0]
        assert found == sha256_of(built.programs / name)


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
