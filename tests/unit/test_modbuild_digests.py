"""Which digests a kernel takes in signatures of modules, by its configuration."""

from __future__ import annotations

import pytest

from driverforge_driver.compile.headers import signature_digests

DEBIAN_12 = """CONFIG_MODULE_SIG=y
# CONFIG_MODULE_SIG_SHA512 is not set
CONFIG_MODULE_SIG_HASH="sha256"
CONFIG_CRYPTO_SHA256=y
CONFIG_CRYPTO_SHA512=m
"""
UBUNTU = """CONFIG_MODULE_SIG_SHA512=y
CONFIG_MODULE_SIG_HASH="sha512"
CONFIG_CRYPTO_SHA256=y
CONFIG_CRYPTO_SHA512=y
"""


@pytest.mark.parametrize(
    ("config", "digests"),
    [
        (DEBIAN_12, ("sha256",)),
        (UBUNTU, ("sha512", "sha256", "sha384")),
        ('CONFIG_MODULE_SIG_HASH="sha384"\n', ("sha384",)),
        ('CONFIG_MODULE_SIG_HASH="sha3-256"\nCONFIG_CRYPTO_SHA256=y\n', ("sha256",)),
        ("# CONFIG_MODULE_SIG is not set\nCONFIG_CRYPTO_SHA256=y\n", ()),
    ],
    ids=["debian12", "ubuntu", "own alone", "newer", "no signatures"],
)
def test_digests_of_a_kernel(config: str, digests: tuple[str, ...]) -> None:
    assert signature_digests(config) == digests
