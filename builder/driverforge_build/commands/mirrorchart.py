"""The chart that --chart and --chart-repository of `driverforge mirror lock` name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driverforge_mirror.contents.chartarchive import ChartArchive
    from driverforge_mirror.ports import Files
    from driverforge_oci.client import RegistryClient


def chart_archive(
    chart: str | None,
    repository: str | None,
    client: RegistryClient,
    registries: Mapping[str, str],
    files: Files,
) -> ChartArchive | None:
    """The chart's archive; None for a folder, and for a version that is known here."""
    from driverforge_mirror.contents.chartarchive import (
        OCI,
        chart_file,
        chart_in_registry,
        chart_in_repository,
    )

    if chart and repository:
        return chart_in_repository(files, repository, chart)
    if chart and chart.startswith(OCI):
        return chart_in_registry(client, chart, registries)
    return chart_file(Path(chart)) if chart and Path(chart).is_file() else None
