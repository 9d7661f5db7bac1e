"""Edits of containerd's root file that a full drop-in hides."""

from __future__ import annotations

from dataclasses import replace

from driverforge_toolkit.runtime.model import RuntimeDaemon, Supervisor
from driverforge_toolkit.watch.shadow import shadowed
from support.fakes.runtimemodel import as_files

CONFIG, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"
CRI = 'plugins."io.containerd.grpc.v1.cri"'
DAEMON = RuntimeDaemon(
    kind="containerd",
    pid=1,
    binary="/usr/bin/containerd",
    version=(1, 7, 24),
    socket="/s",
    config=CONFIG,
    drop_in=DROP_IN,
    supervisor=Supervisor(kind=""),
)
RUNC = f'[{CRI}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
NVIDIA = RUNC.replace("runc]", "nvidia]")


def look(root: str, drop_in: str, *, daemon: RuntimeDaemon = DAEMON, between: str = "") -> tuple[str, ...]:
    files: dict[str, bytes | None] = {CONFIG: root.encode(), DROP_IN: drop_in.encode()}
    if between:
        files = {
            CONFIG: root.encode(),
            "/etc/containerd/conf.d/50.toml": between.encode(),
            DROP_IN: drop_in.encode(),
        }
    return shadowed(daemon, as_files(files), {"nvidia"})


def test_a_setting_that_came_later_is_named() -> None:
    assert look(f"{RUNC}[{CRI}]\nsandbox_image = 'new'\n", RUNC + NVIDIA) == (
        f"{CONFIG}: sandbox_image: 'new' -> (not set) in {DROP_IN}, which counts",
    )


def test_a_setting_that_changed_is_named() -> None:
    before, after = (f"[{CRI}]\nsandbox_image = '{name}'\n" for name in ("old", "new"))
    assert look(after + RUNC, before + RUNC) == (
        f"{CONFIG}: sandbox_image: 'new' -> 'old' in {DROP_IN}, which counts",
    )


def test_a_copy_that_is_one_hides_nothing() -> None:
    assert look(RUNC, RUNC + NVIDIA) == ()


def test_what_is_ours_is_no_ones_setting() -> None:
    default = f'[{CRI}]\nenable_cdi = false\n[{CRI}.containerd]\ndefault_runtime_name = "runc"\n'
    assert look(default + RUNC + NVIDIA.replace("v2", "v1"), RUNC + NVIDIA) == ()


def test_what_is_outside_of_the_section_is_not_hidden() -> None:
    assert look(f"oom_score = 5\n{RUNC}", RUNC) == ()


def test_a_containerd_that_merges_keys_hides_only_what_the_copy_has_too() -> None:
    root = f"{RUNC}[{CRI}]\nsandbox_image = 'new'\n"
    assert look(root, RUNC, daemon=replace(DAEMON, version=(2, 1, 4))) == ()
    assert look(root, RUNC, daemon=replace(DAEMON, version=(2, 0, 4))) != ()


def test_a_full_copy_that_was_written_for_1_7_still_hides_edits_after_an_upgrade_to_2_1() -> None:
    before, after = (f"[{CRI}]\nsandbox_image = '{name}'\n" for name in ("old", "new"))
    upgraded = replace(DAEMON, version=(2, 1, 4))
    assert look(after + RUNC, before + RUNC, daemon=upgraded) == (
        f"{CONFIG}: sandbox_image: 'new' -> 'old' in {DROP_IN}, which counts",
    )
    migrated = (after + RUNC).replace("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
    assert look(f"version = 3\n{migrated}", f"version = 2\n{before}{RUNC}", daemon=upgraded) != ()


def test_the_last_of_the_other_files_is_the_one_to_compare_with() -> None:
    (line,) = look(RUNC, RUNC, between=f"{RUNC}[{CRI}]\nsandbox_image = 'new'\n")
    assert line.startswith("/etc/containerd/conf.d/50.toml: sandbox_image")
    assert look(f"[{CRI}]\nsandbox_image = 'hidden already'\n", RUNC, between=RUNC) == ()


def test_a_drop_in_without_a_section_hides_nothing() -> None:
    assert look(f"[{CRI}]\nsandbox_image = 'new'\n", "oom_score = 1\n") == ()
