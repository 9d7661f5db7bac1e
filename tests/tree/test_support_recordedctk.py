"""Records of NVIDIA's programs stand for them where they cannot be had: without Go, for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from support.upstream import recordedctk

RUNC = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def test_a_root_file_is_changed_as_the_record_has_it_and_another_is_left_alone(tmp_path: Path) -> None:
    config, drop_in = tmp_path / "etc/config.toml", tmp_path / "etc/conf.d/99-nvidia.toml"
    config.parent.mkdir()
    config.write_text(RUNC)
    recordedctk.configure(tmp_path, config, drop_in, real=False)
    assert f'imports = ["{tmp_path}/etc/conf.d/*.toml"]' in config.read_text()
    assert 'BinaryName = "/usr/bin/nvidia-container-runtime"' in drop_in.read_text()
    again = config.read_text()
    recordedctk.configure(tmp_path, config, drop_in, real=False)
    assert config.read_text() == again

    config.write_text("# theirs\n" + RUNC)
    with pytest.raises(Unavailable, match="nothing was recorded"):
        recordedctk.configure(tmp_path, config, drop_in, real=False)
    assert config.read_text() == "# theirs\n" + RUNC


def test_a_config_toml_that_was_not_recorded_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    file = tmp_path / "config.toml"
    file.write_text("# another\n")
    with pytest.raises(Unavailable, match="nothing was recorded") as caught:
        recordedctk.config(tmp_path, file)
    assert "DRIVERFORGE_UPDATE_GOLDEN=1" in caught.value.resolution


def test_figures_that_nobody_recorded_are_missing_by_name() -> None:
    assert recordedctk.figures("nvidia-ctk runtime configure, containerd 1.6")
    with pytest.raises(Unavailable, match="'nvidia-ctk runtime configure, containerd 9'"):
        recordedctk.figures("nvidia-ctk runtime configure, containerd 9")
