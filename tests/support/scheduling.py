"""How pytest-xdist deals a tier's tests out to workers: by module, but for those that a tier names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


class Grouped(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests of one group stay with one worker.

    `group` makes the group of a test's module (without `.py`) and its node id; None is the module's own.
    """

    def __init__(self, config: pytest.Config, log: Any, group: Callable[[str, str], str | None]) -> None:
        super().__init__(config, log)
        self._group = group

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return self._group(PurePath(file).stem, nodeid) or file
