"""A download that may break off and go on."""

from __future__ import annotations

import hashlib
from typing import IO

from driverforge_build.fetch.answers import judge
from driverforge_build.ports import Algorithm
from driverforge_core.errors import TemporaryFailure
from driverforge_oci.transport import Request, Response, host_of, without_secrets


class Part:
    """What has come of a file so far, with the sum that it is known by and its sha256."""

    def __init__(self, file: IO[bytes], algorithm: Algorithm) -> None:
        self._file = file
        self._algorithms = {algorithm, Algorithm.SHA256}
        self.restart()

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.size, self._sums = 0, {one: hashlib.new(one.value) for one in self._algorithms}

    def add(self, chunk: bytes) -> None:
        self._file.write(chunk)
        for one in self._sums.values():
            one.update(chunk)
        self.size += len(chunk)

    def digest(self, algorithm: Algorithm) -> str:
        return self._sums[algorithm].hexdigest()

    def request(self, url: str) -> Request:
        """For what is missing."""
        headers = {"Range": f"bytes={self.size}-"} if self.size else {}
        return Request(method="GET", url=url, headers=headers)

    def check(self, response: Response, url: str) -> None:
        """Raises where the answer is neither a part nor the whole. Whether it is the right part, the digest
        tells.
        """
        if response.status == 416:
            self.restart()
            raise TemporaryFailure(
                f"{host_of(url)} has no such part of the file any more",
                details=[f"{without_secrets(url)}: HTTP 416"],
                resolution="the mirror may be in the middle of an update: run the same command again later",
            )
        if response.status != 206 or not self.size:
            judge(response, url)
            self.restart()
