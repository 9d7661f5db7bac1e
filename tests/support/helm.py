"""Helm, and our chart as it renders it.

The sub-chart cannot be had here: a chart of its name that has nothing stands in its place, as
`helm dependency update` would put the real one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.process import Finished, run

CHART = Path(__file__).parents[2] / "charts/driverforge"
NAMESPACE = "gpu-operator"
IMAGE = "registry.example.com/nvidia/driverforge-operator:v0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """Helm with a copy of our chart; `environment` is for it to find a cluster."""

    binary: Path
    chart: Path
    environment: Mapping[str, str]

    def __call__(self, *words: str, check: bool = True) -> Finished:
        return run(str(self.binary), *words, env=dict(self.environment), check=check)

    def refusal(self, *settings: str) -> str:
        """What it says of values that it does not take."""
        done = self("template", "x", str(self.chart), *_set(settings), check=False)
        assert done.status != 0
        return done.stderr

    def objects(
        self, *settings: str, files: Sequence[Path] = (), kube: str = "1.35.0", crds: bool = False
    ) -> list[dict[str, Any]]:
        """What it makes of values: `--set` words, and files."""
        named = [word for path in files for word in ("--values", str(path))]
        done = self(
            "template",
            "driverforge",
            str(self.chart),
            "--namespace",
            NAMESPACE,
            "--kube-version",
            kube,
            *(["--include-crds"] if crds else []),
            *named,
            *_set([f"driverforge.image={IMAGE}", *settings]),
        )
        return [one for one in yaml.safe_load_all(done.stdout) if one]


def _set(settings: Iterable[str]) -> list[str]:
    return [word for one in ("nfd.enabled=false", *settings) for word in ("--set", one)]


def with_chart(binary: Path, folder: Path, **environment: str) -> Helm:
    """Our chart with what stands in for its sub-chart, in an empty folder."""
    chart = folder / "driverforge"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("charts"))
    (needed,) = yaml.safe_load((chart / "Chart.yaml").read_text())["dependencies"]
    stand_in = chart / "charts" / needed["name"]
    stand_in.mkdir(parents=True)
    (stand_in / "Chart.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v2", "name": needed["name"], "version": needed["version"]})
    )
    home = {key: str(folder / key) for key in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    return Helm(binary=binary, chart=chart, environment={**home, **environment})
