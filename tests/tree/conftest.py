"""What the tests of this tier share: a vendor's key, and pauses that end at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.samples.aptrepo import SigningKey, signing_key


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    """Signs a repository of RPM packages: of a kind that rpm accepts."""
    with signing_key(tmp_path_factory.mktemp("key") / "k", algorithm="rsa2048") as made:
        yield made


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits before it asks again asks at once: five attempts of a command take ten seconds else."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
