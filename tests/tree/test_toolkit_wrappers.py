"""The wrappers as the node's shells run them: the real program's arguments, environment and folder; and next
to upstream's own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from driverforge_toolkit.toolkit.wrapper import RUNTIMES, WRAPPED, render_wrapper, wrapper_of
from support.process import run
from support.samples.wrappers import CLEAN, call, modules, same_everywhere, write_telling

RECORDED = json.loads((Path(__file__).parents[1] / "cases/toolkit/wrappers.json").read_text())
SHELLS = [shell for shell in (["dash"], ["busybox", "sh"], ["bash", "--posix"]) if shutil.which(shell[0])]
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Real programs that tell how they were called, and a low-level runtime."""
    folder = tmp_path / "a b" / "toolkit"
    folder.mkdir(parents=True)
    write_telling(folder, *(f"{name}.real" for name in WRAPPED), "runc")
    return folder


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("name", WRAPPED)
def test_the_real_program_gets_words_and_environment(
    bin_folder: Path, tmp_path: Path, shell: list[str], name: str
) -> None:
    script = render_wrapper(wrapper_of(name, str(bin_folder), "runc"), modules=modules(tmp_path, loaded=True))
    told = call(shell, script, ["--bundle", "a  b", ""], environ={"LD_LIBRARY_PATH": "/lib/x"})
    assert told[:4] == [f"program={name}.real", "word=--bundle", "word=a  b", "word="]
    assert f"PATH={bin_folder}:{CLEAN['PATH']}" in told
    assert (f"LD_LIBRARY_PATH={bin_folder}:/lib/x" in told) == (name == "nvidia-container-cli")
    configured = (
        f"NVIDIA_CTK_CONFIG_FILE_PATH={bin_folder}/.config/nvidia-container-runtime/config.toml" in told
    )
    assert configured == (name in (*RUNTIMES, "nvidia-container-runtime-hook"))


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_an_unset_search_path_does_not_become_the_current_folder(bin_folder: Path, shell: list[str]) -> None:
    assert f"LD_LIBRARY_PATH={bin_folder}" in call(
        shell, render_wrapper(wrapper_of("nvidia-container-cli", str(bin_folder), "runc")), []
    )


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_without_the_driver_the_low_level_runtime_runs(
    bin_folder: Path, tmp_path: Path, shell: list[str]
) -> None:
    runtime = str(bin_folder / "runc")
    for name in RUNTIMES:
        script = render_wrapper(
            wrapper_of(name, str(bin_folder), runtime), modules=modules(tmp_path, loaded=False)
        )
        assert call(shell, script, ["create", "x"])[:3] == ["program=runc", "word=create", "word=x"]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_the_folder_stays_where_it_is_valid_and_is_the_root_where_it_is_gone(
    bin_folder: Path, tmp_path: Path, shell: list[str]
) -> None:
    script = render_wrapper(wrapper_of("nvidia-ctk", str(bin_folder), ""))
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    assert str(bundle) in call(shell, script, ["--bundle", "."], cwd=bundle)
    assert str(bundle) in call(shell, script, [], cwd=bundle, environ={"PWD": "/gone"}), (
        "a stale variable decides nothing"
    )
    gone = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    words = ["sh", "-c", gone, "sh", bundle, *shell, "-c", script, "wrapper"]
    done = subprocess.run(
        [str(word) for word in words], env=CLEAN, capture_output=True, text=True, check=True
    )
    assert "/" in done.stdout.splitlines()


@pytest.mark.skipif(not SHELLCHECK, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(bin_folder: Path, tmp_path: Path) -> None:
    for name in WRAPPED:
        (tmp_path / name).write_text(render_wrapper(wrapper_of(name, str(bin_folder), "runc")))
    run(str(SHELLCHECK), "--shell=sh", "--severity=style", *(tmp_path / name for name in WRAPPED))


@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "not loaded"])
@pytest.mark.parametrize("row", RECORDED, ids=lambda row: str(row["name"]))
def test_a_wrapper_does_what_upstreams_does(tmp_path: Path, row: dict[str, Any], loaded: bool) -> None:
    """Upstream's was run with the same words and environment; what its program told is recorded.

    Upstream's does not quote, so the folder here has no blank.
    """
    here = tmp_path / "toolkit"
    here.mkdir()
    write_telling(here, *(f"{wrapped}.real" for wrapped in WRAPPED), "runc")
    listed = modules(tmp_path, loaded=loaded)
    path = {"PATH": f"{here}:{CLEAN['PATH']}", "LD_LIBRARY_PATH": "/lib/x"}
    ours = render_wrapper(wrapper_of(row["name"], str(here), "runc"), modules=listed)
    told = call(["sh"], ours, ["run", "a b"], environ=path, cwd=here)
    assert same_everywhere(told, here) == row["told"]["loaded" if loaded else "not loaded"]
