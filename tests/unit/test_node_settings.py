"""Settings from the environment, the compatible names' options, the probe's reasons, restart delays."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverctl.cli import build_parser
from driverctl.compatible import driver_arguments
from driverforge_core.errors import InputError, UsageError
from driverforge_driver.driver.supervise import (
    MAX_DELAY,
    STEADY,
    SupervisedDaemon,
    after_end,
    restart_delay,
)
from driverforge_driver.state import variables
from driverforge_driver.state.daemons import PERSISTENCED
from driverforge_driver.state.wanted_driver import own_digest
from driverforge_host import probe

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "hack/lib"))

from pages.tables import contents  # noqa: E402


def test_defaults() -> None:
    found = variables.parse({"KERNEL_MODULE_TYPE": "  ", "PATH": "/bin"})
    assert (found.module_type.value, found.driver_version, found.gpu_direct_rdma) == ("auto", "", False)


# conftest.sh asks whether it is empty: [ -n "$IGNORE_PREEMPT_RT_PRESENCE" ]
@pytest.mark.parametrize(("text", "wanted"), [("1", True), ("yes", True), ("0", True), ("", False)])
def test_real_time_kernels_are_meant_where_nvidias_variable_says_anything(text: str, wanted: bool) -> None:
    assert variables.parse({"IGNORE_PREEMPT_RT_PRESENCE": text}).realtime is wanted


def test_every_bad_value_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        variables.parse(
            {
                "KERNEL_MODULE_TYPE": "opne",
                "DRIVER_TYPE": "vgpu",
                "GPU_DIRECT_RDMA_ENABLED": "yes",
                "TARGETARCH": "s390x",
            }
        )
    assert [line.split("=")[0] for line in caught.value.details] == [
        "environment: DRIVER_TYPE",
        "environment: KERNEL_MODULE_TYPE",
        "environment: GPU_DIRECT_RDMA_ENABLED",
    ]
    assert "write one of auto, open, proprietary" in caught.value.details[1]
    assert caught.value.exit_code == 65


@pytest.mark.parametrize(("path", "text"), contents().items(), ids=contents())
def test_a_page_is_its_table(path: str, text: str) -> None:
    assert (ROOT / path).read_text() == text, "run hack/environment-page"


def test_the_table_has_every_variable_that_the_driver_commands_read() -> None:
    node = ROOT / "entrypoints/driverforge_driver"
    files = [
        file
        for folder in ("state", "driver", "compile", "family", "packages")
        for file in (node / folder).rglob("*.py")
    ] + [node / "app/module_build.py"]
    read = {
        name
        for file in files
        for name in re.findall(r"environ(?:\.get\(|\[)['\"]([A-Z_]+)", file.read_text())
    }
    assert len(read) > 4, "the pattern finds nothing any more"
    assert read <= {variable.name for variable in variables.VARIABLES}


@pytest.mark.parametrize(
    ("argv", "meaning"),
    [
        (["init"], ["init"]),
        (["init", "-a"], ["init"]),
        (["init", "--accept-license", "--max-threads", "4"], ["init", "--jobs", "4"]),
        (["init", "-m", "4", "-a"], ["init", "--jobs", "4"]),
        (["init", "-m4"], ["init", "--jobs", "4"]),
        (["init", "--max-threads=4"], ["init", "--jobs", "4"]),
        (
            ["init", "--headers", "/headers", "--work-dir=/scratch"],
            ["init", "--headers", "/headers", "--work-dir", "/scratch"],
        ),
        # upstream's entry point is `nvidia-driver init`: a pod without a command gives options alone
        (["-a"], ["init"]),
        (["--accept-license", "-m", "4"], ["init", "--jobs", "4"]),
        (["load"], ["init", "--no-build"]),
        (["init", "-k", "6.1.0-50-amd64", "-t", "builtin"], ["init", "--kernel", "6.1.0-50-amd64"]),
        (["init", "--kernel=6.1.0-50-amd64", "--tag=builtin"], ["init", "--kernel", "6.1.0-50-amd64"]),
        (["reload_nvidia_peermem"], ["peermem", "serve"]),
        (["probe_nvidia_peermem"], ["peermem", "probe"]),
        (["status", "--json"], ["status", "--json"]),
    ],
)
def test_upstreams_options(argv: list[str], meaning: list[str]) -> None:
    assert driver_arguments(argv) == meaning
    build_parser(meaning[0]).parse_args(meaning)  # what comes out is a command line of ours


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "no command"),
        (["update"], "driverctl build"),
        (
            ["runtime", "plan", "--socket", "a b"],
            "run `driverctl runtime plan --socket 'a b'` from the toolkit's",
        ),
        (["install"], "unknown command 'install'"),
        (["init", "-s", "key"], "unknown option '-s'"),
        (["-s", "key"], "unknown option '-s'"),
        (["init", "-m"], "needs a number"),
        (["init", "-m", "0"], "needs a number"),
        (["init", "--headers"], "needs a value"),
        (["init", "-t"], "needs a value"),
        (["init", "--work-dir="], "needs a value"),
        (["init", "--max-threads=many"], "needs a number"),
    ],
)
def test_what_the_compatible_name_does_not_serve_is_a_usage_error(argv: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        driver_arguments(argv)
    assert says in caught.value.render()
    assert caught.value.details


STATUS = (
    '{\n  "schema": 1,\n  "phase": "ready",\n  "pid": 77,\n  "daemons": [\n    {\n      "phase": "x"\n'
    "    }\n  ]\n}\n"
)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "the nvidia module is not loaded"),
        ({probe.REFCOUNT: "2\n"}, None),  # upstream's older images write no status: not checked
        ({probe.REFCOUNT: "2\n", probe.DAEMONS: "NotReady\n"}, "says 'NotReady', not 'Ready'"),
        ({probe.REFCOUNT: "2\n", probe.DAEMONS: ""}, "says 'nothing'"),
        ({probe.REFCOUNT: "2\n", probe.DAEMONS: "Ready\n"}, None),
        (
            {
                probe.REFCOUNT: "2\n",
                probe.DAEMONS: "Ready\n",
                probe.STATUS: STATUS.replace("ready", "starting"),
            },
            "phase 'starting'",
        ),
        (
            {probe.REFCOUNT: "2\n", probe.DAEMONS: "Ready\n", probe.STATUS: STATUS},
            "process 77, which is gone",
        ),
        (
            {
                probe.REFCOUNT: "2\n",
                probe.DAEMONS: "Ready\n",
                probe.STATUS: STATUS,
                "/proc/77/stat": "77 (python3) S",
            },
            None,
        ),
        ({probe.REFCOUNT: "2\n", probe.DAEMONS: "Ready\n", probe.STATUS: "torn"}, "phase ''"),
    ],
)
def test_the_probes_reasons(files: dict[str, str], reason: str | None) -> None:
    found = probe.reason_not_ready(files.get)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert reason in found


def test_a_daemon_that_keeps_failing_is_tried_ever_less_often() -> None:
    daemon = SupervisedDaemon(program=PERSISTENCED)
    waits = []
    now = 1000.0
    for _ in range(9):
        daemon = after_end(daemon, now, "exit status 1")
        waits.append(daemon.due - now)
        now = daemon.due
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_one_that_ran_for_long_starts_over() -> None:
    daemon = SupervisedDaemon(program=PERSISTENCED, pid=9, failures=6, started=1000.0)
    assert after_end(daemon, 1000.0 + STEADY, "it ended").failures == 1
    assert after_end(daemon, 1000.0 + STEADY - 1, "it ended").failures == 7
    assert after_end(replace(daemon, pid=0), 5000.0, "no").failures == 7


@given(st.integers(min_value=0, max_value=10_000))
def test_delays_grow_and_are_bounded(failures: int) -> None:
    assert 0 < restart_delay(failures) <= restart_delay(failures + 1) <= MAX_DELAY


def test_our_own_digest_covers_all_that_decides_what_is_loaded() -> None:
    base = own_digest("535.261.03", "auto", ("nvidia",), {"nvidia": ("a=1",)})
    others = [
        own_digest("535.261.04", "auto", ("nvidia",), {"nvidia": ("a=1",)}),
        own_digest("535.261.03", "open", ("nvidia",), {"nvidia": ("a=1",)}),
        own_digest("535.261.03", "auto", ("nvidia", "nvidia_peermem"), {"nvidia": ("a=1",)}),
        own_digest("535.261.03", "auto", ("nvidia",), {"nvidia": ("a=2",)}),
        own_digest("535.261.03", "auto", ("nvidia",), {}),
    ]
    assert len({base, *others}) == 6
    assert base == own_digest("535.261.03", "auto", ("nvidia",), {"nvidia": ("a=1",)})
