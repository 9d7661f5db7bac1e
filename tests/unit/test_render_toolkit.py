"""The toolkit's image: which cells are asked for, NVIDIA's files with their pin, and the Dockerfile as a
golden file.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Matrix, load_matrix
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.matrix.programcells import select_images, split_globs, toolkit_images
from driverforge_build.publish.upload import Publisher
from driverforge_build.render.bake import bake_document, immutable_tag_of, local_reference
from driverforge_build.render.context import BuildContext, context_of, write_context
from driverforge_build.render.files import digest_of, read_files
from driverforge_build.render.toolkit import ToolkitSpec, toolkit_specs
from driverforge_core.errors import InputError, UsageError
from driverforge_oci.client import RegistryClient
from driverforge_oci.session import Session
from support.fakes.fakeengine import FakeEngine
from support.samples.synthetic import synthetic_lock
from support.samples.toolkitsource import VERSION, write_source

GOLDEN = Path(__file__).parents[1] / "golden/toolkit/Dockerfile"
MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
(ROW,) = MATRIX.toolkits


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    write_source(tmp_path / "artifacts/deb")
    write_source(tmp_path / "artifacts/rpm", rpm=True)
    return tmp_path / "artifacts"


def pinned(artifacts: Path) -> Matrix:
    """The matrix with the folder's sha256 for both architectures: a script is the same on each."""
    row = ROW.model_copy(update={"sha256": dict.fromkeys(ROW.archs, digest_of(read_files(artifacts)))})
    return replace(MATRIX, toolkits=(row,))


def specs(
    matrix: Matrix, given: dict[str, str], *, select: str = "toolkit-*-amd64", lock: Lock = LOCK
) -> tuple[ToolkitSpec, ...]:
    cells = select_images(toolkit_images(matrix), select=[select])
    return toolkit_specs(cells, matrix, lock, given=Given(artifacts=given))


def context(artifacts: Path) -> BuildContext:
    (image,) = specs(pinned(artifacts), {"amd64": str(artifacts)})
    return context_of(image, resources.templates())


def test_the_dockerfile_is_the_golden_one(artifacts: Path) -> None:
    text = context(artifacts).entries["Dockerfile"].content.decode()
    if os.environ.get("DRIVERFORGE_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), (
        "if this is wanted: DRIVERFORGE_UPDATE_GOLDEN=1, and review the difference"
    )


def test_the_context_has_our_programs_and_nvidias_files(artifacts: Path) -> None:
    entries = context(artifacts).entries
    assert entries["artifacts/deb/usr/bin/nvidia-ctk"].executable
    assert (
        entries["artifacts/rpm/usr/lib64/libnvidia-container.so.1"].link
        == f"libnvidia-container.so.{VERSION}"
    )
    programs = {name for name in entries if name.startswith("root/usr/local/bin/")}
    assert programs == {
        f"root/usr/local/bin/{name}"
        for name in ("driverctl", "nvidia-toolkit", "nvidia-validator", "driver-manager")
    }
    assert b'sys.argv[0] = "nvidia-toolkit"' in entries["root/usr/local/bin/nvidia-toolkit"].content
    packages = {name.split("/")[4] for name in entries if name.startswith("root/opt/driverforge/lib/")}
    # driver-manager is a command of the driver half
    ours = {"driverctl", *(f"driverforge_{name}" for name in ("core", "kube", "host", "driver", "toolkit"))}
    assert {name for name in packages if name.startswith("driver")} == ours
    assert packages >= {"tomlrt", "h2", "hpack", "hyperframe", "yaml"}
    assert b" python3 " in entries["pins/userspace"].content


def test_an_image_that_is_not_built_names_the_python_packages_of_its_tag(artifacts: Path) -> None:
    engine = FakeEngine()
    client = RegistryClient(Session(engine.registry))
    publisher = Publisher(registry="registry.site/nvidia", engine=engine, client=client, given=Given())
    with pytest.raises(UsageError, match="has not been built") as caught:
        publisher.push(context(artifacts), lambda _: None)
    assert f"PyYAML {metadata.version('PyYAML')}" in caught.value.details[1]


def test_the_folder_that_is_written_has_the_links_and_is_written_once(
    artifacts: Path, tmp_path: Path
) -> None:
    made, folder = context(artifacts), tmp_path / "out"
    write_context(made, folder)
    link = folder / "artifacts/deb/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1"
    assert str(link.readlink()) == f"libnvidia-container.so.{VERSION}"
    before = {path: path.lstat().st_ino for path in folder.rglob("*")}
    write_context(made, folder)
    assert {path: path.lstat().st_ino for path in folder.rglob("*")} == before
    link.unlink()
    link.write_text("a file")
    write_context(made, folder)
    assert link.is_symlink()


def test_tags_and_bake_target(artifacts: Path) -> None:
    made = context(artifacts)
    assert immutable_tag_of(made) == f"v{ROW.id}-r{made.revision}"
    assert made.image.alias_tag == f"v{ROW.id}"
    assert local_reference(made) == f"localhost/driverforge/container-toolkit:v{ROW.id}-r{made.revision}"
    document = bake_document([made])
    name = f"toolkit-{ROW.id.replace('.', '_')}-amd64"
    assert list(document["target"]) == [name]
    assert "contexts" not in document["target"][name]


def test_one_image_for_each_architecture(artifacts: Path) -> None:
    given = dict.fromkeys(ROW.archs, str(artifacts))
    assert [image.arch for image in specs(pinned(artifacts), given, select="toolkit-*")] == ["amd64", "arm64"]


def test_what_goes_in_decides_the_revision(artifacts: Path) -> None:
    first = context(artifacts).revision
    (artifacts / "deb/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1").unlink()
    (artifacts / "deb/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1").symlink_to("elsewhere")
    assert context(artifacts).revision != first


def test_without_a_pin_nothing_is_made_and_the_line_to_write_is_told(artifacts: Path) -> None:
    found = digest_of(read_files(artifacts))
    with pytest.raises(InputError) as caught:
        specs(MATRIX, {"amd64": str(artifacts)})
    assert f"has sha256 {found}, the matrix has no pin" in caught.value.details[0]
    line = caught.value.resolution.partition("write into your matrix: ")[2]
    site = parse_matrix(f"extends: builtin\n{line}\n".encode(), name="site.yaml")
    assert specs(site, {"amd64": str(artifacts)})


def test_all_that_is_missing_is_told_at_once(artifacts: Path, tmp_path: Path) -> None:
    (artifacts / "deb/usr/bin/nvidia-ctk").write_text("another\n")
    empty = replace(LOCK, targets={})
    with pytest.raises(InputError) as caught:
        specs(pinned(tmp_path / "artifacts"), {"arm64": str(tmp_path)}, select="toolkit-*", lock=empty)
    told = "\n".join(caught.value.details)
    assert told.count("the lock has nothing for debian12-") == 2
    assert "NVIDIA's files are not part of driverforge" in told
    assert "has neither deb/usr/bin/nvidia-ctk nor rpm/usr/bin/nvidia-ctk" in told
    assert "driverforge lock --select 'debian12-amd64-*'" in caught.value.resolution


def test_a_system_that_the_sites_keep_leaves_out_is_told_as_that(artifacts: Path) -> None:
    site = parse_matrix(b"extends: builtin\nkeep: {systems: [ubuntu22.04]}\n", name="site.yaml")
    with pytest.raises(InputError) as caught:
        specs(replace(site, toolkits=pinned(artifacts).toolkits), {"amd64": str(artifacts)})
    assert caught.value.details == (
        "toolkit-1.20.2-amd64: your matrix leaves out debian12, whose Python the image uses",
    )
    assert caught.value.resolution == "let `keep:` in your matrix keep debian12 with one driver"


def test_other_files_than_the_pinned_ones_are_refused(artifacts: Path) -> None:
    matrix = pinned(artifacts)
    (artifacts / "deb/usr/bin/nvidia-ctk").write_text("another\n")
    with pytest.raises(InputError, match="toolkit images cannot be made") as caught:
        specs(matrix, {"amd64": str(artifacts)})
    assert "the matrix says" in caught.value.details[0]


def test_each_glob_is_for_images_of_one_kind() -> None:
    globs = ["debian12-*", "operator-*", "toolkit-*"]
    assert split_globs(globs) == (("toolkit-*",), ("operator-*",), ("debian12-*",))


def test_which_globs_are_the_toolkits() -> None:
    images = toolkit_images(MATRIX)
    assert select_images(images, select=[]) == ()
    chosen = select_images(images, select=["toolkit-*"], skip=["*-arm64"])
    assert [cell.key for cell in chosen] == [f"toolkit-{ROW.id}-amd64"]
    with pytest.raises(UsageError, match="matches none of 2 cells"):
        select_images(images, select=["toolkit-9*"])


def test_a_toolkit_names_a_system_of_the_matrix() -> None:
    with pytest.raises(InputError) as caught:
        parse_matrix(
            b'extends: builtin\ntoolkits: [{id: "1.0", system: debian99, archs: [amd64]}]\n', name="site.yaml"
        )
    assert caught.value.details[0].startswith("site.yaml:2: toolkits 1.0: no row 'debian99' in `systems`")
