"""The folder on disk: exactly the context, with the image's times, whatever was there before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import tomllib
from click.testing import CliRunner
from packaging.requirements import Requirement

from driverctl.halves import SUBCOMMANDS
from driverforge_build import resources
from driverforge_build.cli import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import HeaderFact, Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.probes import header_probe, question
from driverforge_build.render.context import BuildContext, context_of, modification_time, write_context
from driverforge_build.render.files import ContextFile
from driverforge_build.render.library import (
    DRIVER_IMAGE,
    THIRD_PARTY,
    TOOLKIT_IMAGE,
    library_files,
    package_files,
)
from driverforge_build.render.spec import FILE_TIME, image_specs
from driverforge_core.errors import InputError, StorageFailed
from support.process import run
from support.samples.synthetic import all_cells, synthetic_lock

ROOT = Path(__file__).parents[2]
MATRIX = load_matrix()
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
JIT = "debian12-amd64-535.261.03-jit"
LIBRARY = "root/opt/driverforge/lib"


@pytest.fixture(scope="module")
def lock() -> Lock:
    return synthetic_lock(MATRIX)


def context(key: str, lock: Lock) -> BuildContext:
    (image,) = image_specs([CELLS[key]], lock)
    return context_of(image, resources.templates())


def tree(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        path.relative_to(folder).as_posix(): (
            path.read_bytes(),
            path.stat().st_mode & 0o777,
            int(path.stat().st_mtime),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_folder_holds_exactly_the_context_with_times_before_the_images(tmp_path: Path, lock: Lock) -> None:
    made = context(JIT, lock)
    write_context(made, tmp_path / "a")
    found = tree(tmp_path / "a")
    assert found.keys() == made.entries.keys()
    assert all(FILE_TIME - 13 * 86400 < time <= FILE_TIME for _, _, time in found.values())
    assert found["scripts/fetch-pinned"][1] == 0o755
    assert found["Dockerfile"][1] == 0o644


def test_a_file_that_changes_and_keeps_its_size_changes_its_time() -> None:
    """BuildKit would take it for unchanged: a sha256 that was replaced by another one was built from the old
    list.
    """
    first, second = (ContextFile(content=digit * 64) for digit in (b"0", b"1"))
    assert modification_time(first) != modification_time(second)
    assert modification_time(first) == modification_time(replace(first))


def test_what_is_stale_goes_and_a_second_writing_changes_nothing(tmp_path: Path, lock: Lock) -> None:
    write_context(context(JIT, lock), tmp_path)
    (tmp_path / "root/left/over").mkdir(parents=True)
    (tmp_path / "root/left/over/file.py").write_text("old")
    (tmp_path / "Dockerfile").write_text("edited by hand")
    write_context(context(JIT, lock), tmp_path)
    first = tree(tmp_path)
    assert not (tmp_path / "root/left").exists()
    write_context(context(JIT, lock), tmp_path)
    assert tree(tmp_path) == first


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/proc/self").exists(),
    reason="needs /proc, a folder that even root cannot write to",
)
def test_a_folder_that_cannot_be_written_says_so(lock: Lock) -> None:
    with pytest.raises(StorageFailed, match="cannot be written") as caught:
        write_context(context(JIT, lock), Path("/proc/self/driverforge"))
    assert caught.value.resolution == "give another --output"


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_folders_of_the_context_do_not_depend_on_the_users_umask(tmp_path: Path, lock: Lock) -> None:
    made = context(JIT, lock)
    write_context(made, tmp_path / "out")
    folders = [tmp_path / "out", *(path for path in (tmp_path / "out").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}
    assert {path.stat().st_mtime for path in folders} == {FILE_TIME}


def test_what_goes_into_images_is_pinned_by_the_builders_own_extra() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["build"]
    pinned = {Requirement(text).name.lower(): str(Requirement(text).specifier) for text in extra}
    for distribution in THIRD_PARTY.values():
        assert pinned[distribution.lower()] == f"=={metadata.version(distribution)}"


def test_what_else_lies_in_a_packages_folder_does_not_go_into_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [
        "__init__.py",
        "py.typed",
        "inner/module.py",
        "module.py.orig",
        ".#module.py",
        "notes.txt",
        "__pycache__/module.pyc",
    ]
    for name in names:
        (tmp_path / "a_package" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a_package" / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert [path for path, _ in package_files("a_package")] == [
        "a_package/__init__.py",
        "a_package/inner/module.py",
        "a_package/py.typed",
    ]


def test_library_is_whole_pure_python_and_licensed() -> None:
    files = library_files(TOOLKIT_IMAGE)
    for name in TOOLKIT_IMAGE:
        assert f"{name}/__init__.py" in files or f"{name}.py" in files
    for name in THIRD_PARTY:
        assert any(path.startswith(f"licenses/{name}/") for path in files), f"{name} without its licence"
    assert not any("__pycache__" in path or path.endswith((".so", ".pyc")) for path in files)
    # it has no file of its own
    assert b"Redistribution and use in source and binary forms" in files["licenses/pynvml/LICENSE"]


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("driverctl", ("init", "--help"), "usage: driverctl init"),
        ("nvidia-driver", ("--nonsense",), "nvidia-driver: "),
        ("driverctl", ("runtime", "plan"), "next: run `driverctl runtime` from the toolkit's image"),
        ("nvidia-driver", ("runtime", "plan"), "error: nvidia-driver runtime is not available in this image"),
        ("driverctl", ("--help",), "(not here: in the toolkit's image (container-toolkit))"),
    ],
)
def test_launcher_runs_the_program_from_the_images_library_alone(
    tmp_path: Path, lock: Lock, program: str, words: tuple[str, ...], said: str
) -> None:
    write_context(context(JIT, lock), tmp_path)
    assert said in launched(tmp_path, program, *words)


@pytest.mark.parametrize("packages", [DRIVER_IMAGE, TOOLKIT_IMAGE], ids=["driver", "toolkit"])
def test_every_command_starts_from_the_library_of_an_image_that_has_it(
    tmp_path: Path, lock: Lock, packages: tuple[str, ...]
) -> None:
    write_context(context(JIT, lock), tmp_path)
    put_library(tmp_path, packages)
    each = """
for name in sys.argv[1:]:
    sys.argv[1:] = [name, "--help"]
    try:
        main()
    except SystemExit:
        continue"""
    said = launched(tmp_path, "driverctl", *SUBCOMMANDS, script_end=each)
    for name, (half, _) in SUBCOMMANDS.items():
        here = f"usage: driverctl {name} " in said
        assert here == (half in packages), f"{name}: {said}"
        assert (f"error: driverctl {name} is not part of this image" in said) != here


def test_a_toolkit_images_library_reads_yaml_with_its_python_part(tmp_path: Path, lock: Lock) -> None:
    write_context(context(JIT, lock), tmp_path)
    put_library(tmp_path, TOOLKIT_IMAGE)
    words = ("cdi", "transform", "--input", "/etc/passwd")
    assert "/etc/passwd is not a CDI spec" in launched(tmp_path, "driverctl", *words)
    assert "not here" not in launched(tmp_path, "driverctl", "--help")


def put_library(tmp_path: Path, packages: tuple[str, ...]) -> None:
    for path, content in library_files(packages).items():
        file = tmp_path / LIBRARY / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def launched(tmp_path: Path, program: str, *words: str, script_end: str = "\nmain()") -> str:
    """All that a program prints which a context's launcher starts.

    The library is elsewhere than in an image and the interpreter is ours, and `script_end` may call the
    program more than once; the rest of the script is what an image has.
    """
    script = (
        (tmp_path / f"root/usr/local/bin/{program}")
        .read_text()
        .replace("/opt/driverforge/lib", str(tmp_path / LIBRARY))
    )
    assert "\nmain()'" in script
    script = script.replace("\nmain()'", f"{script_end}'")
    command = ["sh", "-c", script.replace("/usr/bin/python3", sys.executable), program, *words]
    (tmp_path / "os.py").write_text("raise SystemExit('the working folder is on the path')")
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    return " ".join((done.stdout + done.stderr).split())


def test_images_have_the_packages_that_they_run_and_no_more(lock: Lock) -> None:
    entries = context(JIT, lock).entries
    assert {name.split("/")[4] for name in entries if name.startswith(LIBRARY)} == {
        "driverctl",
        "driverforge_core",
        "driverforge_driver",
        "driverforge_host",
        "driverforge_kube",
    }
    # of what only one half has, its adapters lie there too
    assert not [name for name in entries if "metrics_server" in name]


def answered(lock: Lock) -> Lock:
    """The lock with the answer "fine" of its kernels' headers to every probe of the matrix."""
    target = lock.targets["debian12-amd64"]
    fine = {question(header_probe(row)): HeaderFact(breaks=False, found="a.h:1: x") for row in MATRIX.probes}
    headers = (package.key for kernel in target.kernels.values() for package in kernel.headers)
    return lock.with_targets([replace(target, header_facts=dict.fromkeys(headers, fine))])


def test_generate_writes_what_bake_wants(tmp_path: Path, lock: Lock) -> None:
    (tmp_path / "l.json").write_text(dump_lock(answered(lock)))
    command = [
        sys.executable,
        "-c",
        "from driverforge_build.cli import main; main()",
        "generate",
        "--lock",
        tmp_path / "l.json",
        "--json",
    ]
    select = [
        "--select",
        "debian12-amd64-535.261.03-jit",
        "--select",
        "debian12-amd64-535.261.03-6.1.0-50-cloud-amd64",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("builder", "entrypoints")),
    }
    base = ["--base", "debian12=registry.site/debian:bookworm"]
    planned = subprocess.run(
        [*command, *select, "--output", tmp_path / "out", "--plan"],
        env=environment,
        capture_output=True,
        check=True,
    )
    assert not (tmp_path / "out").exists()
    assert not json.loads(planned.stdout)["written"]
    done = subprocess.run(
        [*command, *select, *base, "--output", tmp_path / "out"],
        env=environment,
        capture_output=True,
        check=True,
    )
    document = json.loads(done.stdout)
    bake = json.loads((tmp_path / "out/docker-bake.json").read_text())
    assert [image["target"] for image in document["images"]] == bake["group"]["default"]["targets"]
    for image in document["images"]:
        text = Path(image["folder"], "Dockerfile").read_text()
        assert "ARG BASE_IMAGE=registry.site/debian:bookworm\n" in text
        assert image["inputs"] == bake["target"][image["target"]]["labels"]["io.driverforge.inputs"]


def test_generate_without_a_choice_leaves_out_what_has_no_pin_and_names_it(
    tmp_path: Path, lock: Lock
) -> None:
    (tmp_path / "l.json").write_text(
        dump_lock(Lock(targets={"debian12-amd64": lock.targets["debian12-amd64"]}))
    )
    words = ["generate", "--lock", str(tmp_path / "l.json"), "--output", str(tmp_path / "out"), "--plan"]
    told = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert told.exit_code == 0
    assert f"would write {tmp_path / 'out' / JIT}\n" in told.stdout
    assert "580.178.04" not in told.stdout
    without = "NVIDIA's archive 580.178.04 for amd64 is not pinned"
    assert f"left out debian12-amd64-580.178.04-jit: unknown: {without}\n" in told.stderr
    document = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).stdout)
    left_out = document["left_out"]["debian12-amd64-580.178.04-jit"]
    assert (left_out["verdict"], left_out["reason"]) == ("unknown", without)
    assert " --trust-first-use" in left_out["run"]


def test_generate_says_what_to_do_where_nothing_has_all_its_pins(tmp_path: Path, lock: Lock) -> None:
    bare = replace(lock.targets["debian12-amd64"], drivers={})
    (tmp_path / "l.json").write_text(dump_lock(Lock(targets={"debian12-amd64": bare})))
    with pytest.raises(InputError, match="can be built; nothing was written") as caught:
        CliRunner().invoke(
            cli,
            ["generate", "--lock", str(tmp_path / "l.json"), "--output", str(tmp_path / "out")],
            catch_exceptions=False,
        )
    assert f"driverforge lock --lock {tmp_path / 'l.json'} --select 'debian12-amd64-*'" in (
        caught.value.resolution
    )


def tool(name: str) -> str:
    """A linter of the development environment; pip puts it beside the interpreter."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return found or pytest.skip(f"needs {name}: pip install --group dev")


def test_scripts_of_the_build_are_shellcheck_clean() -> None:
    folder = resources.templates()
    scripts = [path for path in folder.glob("scripts/*") if path.read_text().startswith("#!/bin/sh")]
    assert len(scripts) == 6
    run(tool("shellcheck"), *scripts, *folder.glob("*/manager"))
