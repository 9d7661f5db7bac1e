"""The real adapters on real files, processes and signals of this machine; nothing of it is changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.modules import KernelModules
from driverforge_host.adapters.processes import KernelProcesses
from driverforge_host.adapters.real import node_root, real_host
from driverforge_host.adapters.services import SystemdServices
from driverforge_host.adapters.subprocesses import SystemCommands, pasteable
from driverforge_host.ports import describe_holder
from support.fakes.answers import Answers
from support.fakes.fakehost import FakeCommands

PACKAGES = Path(__file__).resolve().parents[2] / "entrypoints"


def program(folder: Path, name: str, script: str) -> Path:
    """A real executable, for PATH."""
    target = folder / name
    target.write_text(f"#!/bin/sh\n{script}\n")
    target.chmod(0o755)
    return target


@contextmanager
def child(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of our own that prints a line when it is ready."""
    whole = f"import sys; sys.path.insert(0, {str(PACKAGES)!r})\n{textwrap.dedent(code)}"
    with subprocess.Popen(
        [sys.executable, "-c", whole, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


# --- locks, between two processes

LOCKER = """
from driverforge_host.adapters.files import RootedFiles
with RootedFiles(sys.argv[1]).lock("/pid", text="4711") as won:
    assert won
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_second_locker_leaves_the_firsts_file_alone_and_gets_it_after_kill_9(tmp_path: Path) -> None:
    """D6, with two real processes."""
    files = RootedFiles(str(tmp_path))
    with child(LOCKER, str(tmp_path)) as first:
        with files.lock("/pid", text="9999") as won:
            assert not won
        assert (tmp_path / "pid").read_text() == "4711"
        first.kill()
        first.wait()
        assert (tmp_path / "pid").read_text() == "4711"  # nobody cleaned up
        with files.lock("/pid", text="99") as won:
            assert won
            assert (tmp_path / "pid").read_text() == "99"
    assert not (tmp_path / "pid").exists()


def test_a_lock_on_a_file_that_was_replaced_is_no_lock(tmp_path: Path) -> None:
    """The loser of a race opens the file that the winner is about to unlink.

    Holding that inode excludes nobody.
    """
    files = RootedFiles(str(tmp_path))
    with files.lock("/pid", text="1") as won:
        assert won
        (tmp_path / "pid").unlink()
        with files.lock("/pid", text="2") as second:
            assert second
            with files.lock("/pid", text="3") as third:
                assert not third


# --- commands


def test_children_get_a_small_environment_and_everything_they_print_comes_back(tmp_path: Path) -> None:
    program(tmp_path, "tool", 'env | sort; seq 1 30000 >&2; cat; exit "$1"')
    commands = SystemCommands(
        {"PATH": f"{tmp_path}:/usr/bin:/bin", "SECRET": "x", "https_proxy": "http://proxy:1", "LANG": "de_DE"}
    )
    result = commands.run(["tool", "0"], env={"EXTRA": "1"}, input_text="from stdin\n")
    lines = result.stdout.splitlines()
    assert lines[-1] == "from stdin"
    names = {line.partition("=")[0] for line in lines[:-1]} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {"EXTRA", "HOME", "LC_ALL", "PATH", "https_proxy"}
    assert result.stderr.splitlines()[-1] == "30000"
    assert len(result.stderr.splitlines()) == 30000


def test_a_failing_program_brings_its_whole_stderr(tmp_path: Path) -> None:
    program(tmp_path, "tool", "echo out; seq 1 500 >&2; exit 3")
    commands = SystemCommands({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    with pytest.raises(CommandFailed, match="failed with status 3") as caught:
        commands.run(["tool", "a b"])
    assert caught.value.details[:2] == ("$ tool 'a b'", "out")
    assert caught.value.details[-1] == "500"
    assert commands.run(["tool"], check=False).status == 3


def test_missing_programs_and_folders_are_told_apart(tmp_path: Path) -> None:
    commands = SystemCommands({})
    with pytest.raises(Unavailable, match="program not found: nothing-of-that-name") as caught:
        commands.run(["nothing-of-that-name"])
    assert any("PATH=" in line for line in caught.value.details)
    with pytest.raises(CommandFailed, match="no such folder"):
        commands.run(["true"], cwd=str(tmp_path / "missing"))
    program(tmp_path, "locked", "true").chmod(0o644)
    assert SystemCommands({"PATH": str(tmp_path)}).find("locked") is None
    with pytest.raises(Unavailable):
        commands.spawn(["nothing-of-that-name"])


def test_a_timeout_kills_and_is_retryable() -> None:
    with pytest.raises(TemporaryFailure, match=r"longer than 0\.2 s"):
        SystemCommands({}).run(["sleep", "600"], timeout=0.2)
    with pytest.raises(TemporaryFailure, match=r"longer than 0\.2 s"):
        SystemCommands({}).run(["sleep", "600"], timeout=0.2, stream=True)


def test_a_stop_signal_ends_a_long_command_with_all_its_children(tmp_path: Path) -> None:
    program(tmp_path, "make", f"sleep 600 & echo $! > {tmp_path}/pid; echo started; wait")
    stop = [None, None, "SIGTERM"]
    commands = SystemCommands(
        {"PATH": f"{tmp_path}:/usr/bin:/bin"}, lambda: stop.pop(0) if len(stop) > 1 else stop[0]
    )
    with pytest.raises(TemporaryFailure, match="make stopped by SIGTERM"):
        commands.run(["make"], stream=True)
    assert not KernelProcesses().alive(int((tmp_path / "pid").read_text()))


def test_a_streamed_command_returns_all_its_lines(tmp_path: Path) -> None:
    result = SystemCommands({}).run(["sh", "-c", "echo one; echo two >&2; printf three"], stream=True)
    assert result.stdout == "one\ntwo\nthree"


def test_the_logged_line_can_be_pasted_and_holds_no_proxy_password() -> None:
    line = pasteable(
        ["make", "-j2", "CC=gcc 12"], {"IGNORE": "a b", "https_proxy": "http://user:secret@proxy"}
    )
    assert line == "IGNORE='a b' make -j2 'CC=gcc 12'"


def test_a_spawned_daemon_outlives_the_call_and_logs_to_its_file(tmp_path: Path) -> None:
    program(tmp_path, "daemon", "echo up; echo problem >&2; exec sleep 600")
    processes = KernelProcesses()
    pid = SystemCommands({"PATH": f"{tmp_path}:/usr/bin:/bin"}).spawn(["daemon"], log=str(tmp_path / "log"))
    try:
        assert processes.alive(pid)
        assert os.getsid(pid) == pid
    finally:
        assert processes.terminate(pid, timeout=30)
    assert (tmp_path / "log").read_text().splitlines() in (["up", "problem"], ["up"], [])
    assert processes.reap().get(pid) == -signal.SIGTERM


# --- processes

# /dev/full and /dev/zero are of one major; a mapping keeps a file open without a descriptor
HOLDER = """
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
opened = open(sys.argv[1], "r+b")
mapped = mmap.mmap(opened.fileno(), 4096)
device = open("/dev/full", "wb")
with open("/dev/zero", "r+b") as zero:
    libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_PRIVATE, zero.fileno(), 0)
libc.prctl(15, b"x\\nerror: y", 0, 0, 0)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_mount_whose_source_looks_like_two_lines_does_not_end_the_search(tmp_path: Path) -> None:
    """Any user can mount so, in namespaces of their own."""
    (tmp_path / "7").mkdir()
    mounts = "36 35 0:9 / /tmp/a rw - tmpfs x\x0cy rw\n37 35 0:22 /nvidia/driver /d rw - tmpfs run rw\n"
    (tmp_path / "7/mountinfo").write_bytes(mounts.encode())
    assert [holder.path for holder in KernelProcesses(str(tmp_path)).users("/nvidia/driver")] == [
        "/nvidia/driver"
    ]


def test_a_holder_has_a_character_device_of_the_majors_open_or_mapped(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").write_bytes(bytes(4096))
    processes = KernelProcesses()
    major = os.major(Path("/dev/full").stat().st_rdev)
    with child(HOLDER, str(tmp_path / "nvidia0")) as holder:
        held = {h.path: h for h in processes.holders({major}) if h.pid == holder.pid}
        assert "/dev/full" in held
        assert f"{tmp_path}/nvidia0" not in held
        if os.geteuid() == 0:  # only then can /proc/PID/map_files be followed
            assert "/dev/zero" in held
        shown = describe_holder(held["/dev/full"])
        assert shown.startswith(f"process {holder.pid} (x\\nerror: y")
        assert [h for h in processes.holders({major + 300}) if h.pid == holder.pid] == []
        assert processes.holders(()) == ()
        # a descriptor is a reference, the mapping of a closed one is not counted
        assert processes.opened_majors(holder.pid, {major, major + 300}) == (major,)
        assert processes.opened_majors(holder.pid, {major + 300}) == ()
    assert processes.opened_majors(holder.pid, {major}) == ()
    assert [h for h in processes.holders({major}) if h.pid == holder.pid] == []


def test_a_zombie_and_a_reused_pid_are_not_alive() -> None:
    processes = KernelProcesses()
    with child('print("ready", flush=True); sys.stdin.readline()') as running:
        assert processes.alive(running.pid)
        assert processes.alive(running.pid, command=Path(f"/proc/{running.pid}/comm").read_text().strip())
        assert not processes.alive(running.pid, command="nvidia-persistenced")
        running.kill()
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)  # it has ended and nobody has collected it
        assert not processes.alive(running.pid)
        assert processes.terminate(running.pid, timeout=0)
    assert not processes.alive(running.pid)


def test_terminate_never_kills(tmp_path: Path) -> None:
    deaf = (
        'import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print("ready", flush=True); '
        "sys.stdin.readline()"
    )
    with child(deaf) as stubborn:
        assert not KernelProcesses().terminate(stubborn.pid, timeout=0.1)
        assert stubborn.poll() is None


SUBREAPER = """
import os
from driverforge_host.adapters.processes import KernelProcesses
processes = KernelProcesses()
processes.become_subreaper()
middle = os.fork()
if middle == 0:
    if os.fork() == 0:
        sys.stdin.readline()
        os._exit(7)
    os._exit(0)
os.waitpid(middle, 0)
print("ready", flush=True)
while not (ended := processes.reap()):
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
print(sorted(ended.values()), flush=True)
"""


def test_a_daemon_that_forked_away_is_reaped() -> None:
    with child(SUBREAPER) as reaper:
        assert reaper.stdin is not None
        assert reaper.stdout is not None
        reaper.stdin.write("go\n")
        reaper.stdin.flush()
        assert reaper.stdout.readline() == "[7]\n"


UNPRIVILEGED = """
import os
from driverforge_core.errors import NotPermitted
from driverforge_host.adapters.mounts import KernelMounts
if os.geteuid() == 0:
    os.setuid(65534)
print("ready", flush=True)
try:
    KernelMounts().rbind("/proc", "/usr")
except NotPermitted as error:
    print(error.brief, error.details, flush=True)
"""


def test_mounting_without_privilege_is_not_permitted() -> None:
    with child(UNPRIVILEGED) as process:
        assert process.stdout is not None
        assert process.stdout.read() == (
            "may not mount: mount --rbind /proc /usr ('$ mount --rbind /proc /usr', "
            "'Operation not permitted (errno EPERM)')\n"
        )


# --- clock

WAITER = """
from driverforge_host.adapters.clock import SignalClock
clock = SignalClock()
clock.catch_signals()
print("ready", flush=True)
print(clock.wait(600), clock.wait(600), clock.stop_requested(), flush=True)
sys.stdin.readline()
print(clock.wait(600), list(clock.ticks(timeout=600, interval=600))[1:], flush=True)
"""


def test_a_stop_signal_ends_every_wait_and_a_second_one_changes_nothing() -> None:
    with child(WAITER) as waiter:
        assert waiter.stdin is not None
        assert waiter.stdout is not None
        waiter.send_signal(signal.SIGTERM)
        assert waiter.stdout.readline() == "SIGTERM SIGTERM SIGTERM\n"
        waiter.send_signal(signal.SIGINT)
        waiter.stdin.write("go\n")
        waiter.stdin.flush()
        assert waiter.stdout.readline() == "SIGTERM []\n"
        assert waiter.wait(60) == 0


# --- modules and services, with programs of our own on PATH


def modules_with(tmp_path: Path, **programs: str) -> KernelModules:
    for name, script in programs.items():
        program(tmp_path, name, script)
    return KernelModules(SystemCommands({"PATH": f"{tmp_path}:/usr/bin:/bin"}), RootedFiles())


def test_modprobes_own_words_come_along(tmp_path: Path) -> None:
    modules = modules_with(
        tmp_path, modprobe="echo \"modprobe: ERROR: could not insert 'nvidia': No such device\" >&2; exit 1"
    )
    with pytest.raises(CommandFailed, match="could not insert the module nvidia") as caught:
        modules.insert("nvidia", base="/tree")
    assert caught.value.details[:2] == (
        "$ modprobe -d /tree nvidia",
        "modprobe: ERROR: could not insert 'nvidia': No such device",
    )


@pytest.mark.parametrize(("word", "program_of"), [("insert", "modprobe"), ("remove", "rmmod")])
def test_a_module_that_the_kernel_does_not_get_done_with(tmp_path: Path, word: str, program_of: str) -> None:
    program(tmp_path, program_of, "exec sleep 600")
    commands = SystemCommands({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    modules = KernelModules(commands, RootedFiles(), limit=0.2)
    with pytest.raises(TemporaryFailure) as caught:
        modules.insert("nvidia") if word == "insert" else modules.remove("nvidia")
    assert caught.value.brief == (
        f"could not {word} the module nvidia: {program_of} has not ended after 0.2 s"
    )
    assert caught.value.details[0].startswith(f"$ {program_of} ")
    assert "dmesg" in caught.value.resolution


def test_no_module_is_waited_for_for_ever() -> None:
    commands = Answers({})
    modules = KernelModules(commands, RootedFiles())
    modules.insert("nvidia")
    modules.remove("nvidia")
    assert [line.split()[0] for line in commands.asked] == ["modprobe", "rmmod"]
    assert commands.endless == []


def test_a_failing_rmmod_raises(tmp_path: Path) -> None:
    """D2."""
    modules = modules_with(
        tmp_path, rmmod='echo "rmmod: ERROR: Module $1 is in use by: nvidia_uvm" >&2; exit 1'
    )
    with pytest.raises(Exception, match="could not remove the module nvidia") as caught:
        modules.remove("nvidia")
    assert type(caught.value).__name__ == "InUse"


def test_this_machines_modules_can_be_read() -> None:
    modules = real_host().modules
    assert modules.release() == os.uname().release
    for name, module in modules.loaded().items():
        assert name == module.name
    assert all("\n" not in line for line in modules.kernel_log())


def test_services_are_reached_through_pid_1s_mounts() -> None:
    commands = FakeCommands(
        programs={"nsenter": lambda argv: (0, "77\n" if "show" in argv else "a\nb\n", "")}
    )
    services = SystemdServices(commands, ("nsenter", "--target", "1", "--mount", "--"))
    assert services.main_pid("containerd") == 77
    assert services.last_log_lines("containerd", 2) == ("a", "b")
    services.restart("containerd", timeout=180)
    assert commands.calls[-1] == (
        "nsenter",
        "--target",
        "1",
        "--mount",
        "--",
        "systemctl",
        "restart",
        "containerd",
    )


@pytest.mark.parametrize("answer", [(1, "", "Failed to get properties: Connection timed out\n"), (0, "", "")])
def test_a_question_that_systemd_does_not_answer_has_no_pid(answer: tuple[int, str, str]) -> None:
    services = SystemdServices(FakeCommands(programs={"systemctl": lambda argv: answer}))
    with pytest.raises(CommandFailed, match="systemctl"):
        services.main_pid("containerd")


def test_an_explicit_mount_of_the_host_wins(tmp_path: Path) -> None:
    files = RootedFiles("/", beneath=str(tmp_path))
    (tmp_path / "proc/1/root").mkdir(parents=True)
    assert node_root(files) == "/proc/1/root"
    (tmp_path / "host/etc").mkdir(parents=True)
    (tmp_path / "host/etc/os-release").symlink_to("../usr/lib/os-release")
    assert node_root(files) == "/host"
    assert node_root(RootedFiles("/", beneath=str(tmp_path / "host"))) == "/"
