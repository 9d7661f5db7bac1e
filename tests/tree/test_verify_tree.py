"""A kernel out of its packages: unpacked files, the image, and modules with what they depend on."""

from __future__ import annotations

import lzma
import subprocess
from pathlib import Path

import pytest

from driverforge_build.fetch.packagefile import unpack_package
from driverforge_build.verify.tree import read_tree
from driverforge_core.errors import InputError
from support.process import missing
from support.samples import rpmrepo
from support.samples.rpmrepo import Rpm
from support.samples.tinyko import tiny_ko

RELEASE = "5.14.0-427.13.1.el9_4.x86_64"


def module(home: Path, name: str, *depends: str, pack: bool = False) -> bytes:
    content = tiny_ko([f"depends={','.join(depends)}", f"name={name}"])
    (home / "kernel").mkdir(parents=True, exist_ok=True)
    place = home / "kernel" / (f"{name}.ko.xz" if pack else f"{name}.ko")
    place.write_bytes(lzma.compress(content) if pack else content)
    return content


@pytest.mark.parametrize(
    ("home", "image"),
    [
        ("lib/modules", f"boot/vmlinuz-{RELEASE}"),
        ("usr/lib/modules", f"usr/lib/modules/{RELEASE}/vmlinuz"),
        ("lib/modules", f"boot/Image-{RELEASE}"),
    ],
)
def test_each_distribution_has_its_place_for_the_kernel(tmp_path: Path, home: str, image: str) -> None:
    module(tmp_path / home / RELEASE, "video")
    with pytest.raises(InputError, match="hold no kernel to boot"):
        read_tree(tmp_path, RELEASE)
    (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / image).write_text("the kernel")
    tree = read_tree(tmp_path, RELEASE)
    assert tree.image == tmp_path / image
    assert list(tree.modules) == ["video"]


def test_modules_come_with_what_they_need_in_front_of_them(tmp_path: Path) -> None:
    home = tmp_path / "lib/modules" / RELEASE
    contents = {
        "drm_kms_helper": module(home, "drm_kms_helper", "drm", "i2c-core", pack=True),
        "drm": module(home, "drm", "drm-panel-quirks", pack=True),
        "drm_panel_quirks": module(home, "drm-panel-quirks"),
        "one": module(home, "one", "other"),
        "other": module(home, "other", "one"),
    }
    (home / "modules.builtin").write_text("kernel/drivers/i2c/i2c-core.ko\n")
    (home / "vmlinuz").touch()
    tree = read_tree(tmp_path, RELEASE)
    found = tree.needed(["drm-kms-helper", "i2c_core", "nvidia", "drm"])
    assert list(found) == ["drm_panel_quirks", "drm", "drm_kms_helper"]
    assert all(found[name] == contents[name] for name in found)
    assert list(tree.needed(["one"])) == ["other", "one"]
    assert tree.lacks(["drm", "i2c_core", "ib_core"]) == {"ib_core"}


@pytest.mark.skipif(bool(missing("rpmbuild", "rpm2cpio", "cpio")), reason="needs rpmbuild, rpm2cpio and cpio")
def test_an_rpm_is_unpacked_as_rpm2cpio_and_cpio_do(tmp_path: Path) -> None:
    home = f"/lib/modules/{RELEASE}"
    files = {f"{home}/vmlinuz": "the kernel", f"{home}/modules.builtin": "kernel/drivers/i2c/i2c-core.ko\n"}
    package = rpmrepo.build(
        Rpm(name="kernel-core", version="5.14.0", release="427.el9", files=files), tmp_path / "made"
    )
    unpack_package(package, tmp_path / "ours")
    (tmp_path / "theirs").mkdir()
    script = 'rpm2cpio "$1" | cpio -idm --quiet'
    subprocess.run(["sh", "-c", script, "sh", package], cwd=tmp_path / "theirs", check=True)
    assert contents_of(tmp_path / "ours") == contents_of(tmp_path / "theirs") != {}
    assert read_tree(tmp_path / "ours", RELEASE).builtin == {"i2c_core"}


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
