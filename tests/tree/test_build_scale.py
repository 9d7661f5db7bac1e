"""What `build --plan` does for each cell: about what `plan` does, whatever the number of cells.

Work is counted, not timed: calls of functions, as the interpreter's own profiler sees them.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.render.context import context_of
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import MATRIX, write_matrix

NO_PROBES = MATRIX[: MATRIX.index("probes:")] + MATRIX[MATRIX.index("systems:\n") :]
Counts = tuple[int, int]


@pytest.fixture
def profiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[int, Sequence[str]], Counts]:
    """Run a command over so many kernels; how often a context was rendered, and all calls together."""
    write_matrix(tmp_path, NO_PROBES)

    def profiled(kernels: int, words: Sequence[str]) -> Counts:
        releases = [f"6.1.0-{number}-cloud-amd64" for number in range(100, 100 + kernels)]
        made = [kernel(release, package(f"linux-headers-{release}")) for release in releases]
        lock = Lock(targets={"debian12-amd64": target(*made, drivers={"535.261.03": sample_driver()})})
        (tmp_path / "l.json").write_text(dump_lock(lock))
        profile = cProfile.Profile()
        given = ["--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "l.json")]
        status = profile.runcall(cli.run, [*words, *given, "--select", "debian12-*"])
        told = capsys.readouterr().out
        assert (status, told.count("  build  ")) == (0, kernels + 1)
        entries = profile.getstats()
        rendered = sum(entry.callcount for entry in entries if entry.code is context_of.__code__)
        return rendered, sum(entry.callcount for entry in entries)

    return profiled


def test_a_plan_of_a_build_renders_nothing(profiled: Callable[[int, Sequence[str]], Counts]) -> None:
    assert profiled(5, ["build", "--plan"])[0] == 0


def test_a_plan_of_a_build_does_for_a_cell_what_plan_does(
    profiled: Callable[[int, Sequence[str]], Counts],
) -> None:
    def a_cell(*words: str) -> float:
        """Calls for one more kernel. The first run of each command imports modules, and does not count."""
        few, many = [profiled(kernels, words)[1] for kernels in (10, 10, 110)][1:]
        return (many - few) / 100

    assert a_cell("build", "--plan") < 1.5 * a_cell("plan")
