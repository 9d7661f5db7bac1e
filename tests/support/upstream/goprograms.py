"""All programs of the bench that are compiled from the Go module proxy.

Run as a program, it makes those that the cache lacks. `hack/test` starts it beside its first tiers, which
leave a processor idle at times. A test that needs a program meanwhile waits for its lock in the cache. What
cannot be made is said by the tests that need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from driverforge_core.errors import DriverforgeError
from support import gobuild
from support.cluster import kubernetes_build
from support.machines import containerd
from support.upstream import gotools

# what is needed first comes first
PROGRAMS: Mapping[str, Callable[[], object]] = {
    containerd.RECIPE.what: lambda: gobuild.programs(containerd.RECIPE),
    gotools.RECIPE.what: gotools.programs,
    kubernetes_build.RECIPE.what: kubernetes_build.programs,
}


def main() -> None:
    for what, make in PROGRAMS.items():
        began = time.monotonic()
        try:
            make()
        except DriverforgeError as error:
            print(error.render(), flush=True)
        else:
            print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
