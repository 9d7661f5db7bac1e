"""YAML as libyaml's events, of which hostile text makes no more than there are."""

from __future__ import annotations

from collections.abc import Iterator

import yaml


def events(text: str | bytes) -> Iterator[yaml.Event]:
    """libyaml's events: flat, however deep the text nests. Raises yaml.YAMLError."""
    loader = yaml.CSafeLoader(text)
    try:
        while (event := loader.get_event()) is not None:
            yield event
    finally:
        loader.dispose()
