"""The certificate that a site's kernel modules are signed for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from driverforge_core.certificate import Certificate, parse_certificate
from driverforge_core.errors import InputError

UNSIGNED = "unsigned"
"""The stage that modules leave a build from, and the build context they come back as, with signatures."""


@cache
def read_certificate(file: Path) -> Certificate:
    """The certificate in a file. Raises InputError, Unsupported, with the file's name."""
    try:
        return parse_certificate(file.read_bytes())
    except OSError as error:
        raise InputError(
            f"the certificate {file} cannot be read: {error.strerror}",
            resolution="give the certificate of the key that signs modules: --sign-certificate FILE",
        ) from error
    except InputError as error:
        raise InputError(
            f"{file}: {error.brief}", details=error.details, resolution=error.resolution
        ) from error
