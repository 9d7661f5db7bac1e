"""Alerts and dashboard of the chart, checked by Prometheus' own tool."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from support import aptfetch
from support.helm import CHART
from support.process import run
from support.skipping import provided

FILES = CHART / "files"


@pytest.fixture(scope="module")
def promtool() -> str:
    archive = provided(aptfetch.archive)
    package = provided(lambda: archive.newest("prometheus", suite="bookworm"))
    return str(archive.unpacked([package]) / "usr/bin/promtool")


def test_alerts_fire_where_they_shall(promtool: str, tmp_path: Path) -> None:
    for source in (FILES / "alerts.yaml", Path(__file__).with_name("alerts-test.yaml")):
        shutil.copy(source, tmp_path)
    assert "9 rules found" in run(promtool, "check", "rules", str(tmp_path / "alerts.yaml")).stdout
    said = run(promtool, "test", "rules", str(tmp_path / "alerts-test.yaml"), check=False)
    assert said.status == 0, said.stdout + said.stderr


def test_every_panel_asks_what_prometheus_understands(promtool: str, tmp_path: Path) -> None:
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(asked)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": rules}]}))
    said = run(promtool, "check", "rules", str(tmp_path / "panels.yaml")).stdout
    assert f"{len(rules)} rules found" in said
