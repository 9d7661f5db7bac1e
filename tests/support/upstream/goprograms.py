"""The programs that runs of the bench need, compiled from the Go module proxy.

Run as a program, it makes those that the cache lacks; what is `seldom` needed only with --full. `hack/test`
starts it beside its first tiers, which leave a processor idle at times. A test that needs a program meanwhile
waits for its lock in the cache, or makes what nobody has begun. What cannot be made is said by the tests that
need it.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from driverforge_core.errors import DriverforgeError
from support import cache, gobuild
from support.cluster import kubernetes_build
from support.machines import containerd
from support.upstream import gotools, helm, registries

# what is needed first comes first: the engine tier's in the order of its tests, then the cluster tier's
RECIPES = (
    registries.REGCTL,
    registries.OLAREG,
    gotools.RECIPE,
    *containerd.COMPILED.values(),
    kubernetes_build.RECIPE,
    helm.RECIPE,
)


def main() -> None:
    folder = cache.root() / "go"
    with cache.locked(folder.with_suffix(".lock")):
        # ours alone under the lock: what is there was left by a killed run
        shutil.rmtree(folder, ignore_errors=True)
        try:
            for recipe in RECIPES:
                if _wanted(recipe):
                    _make(recipe, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _wanted(recipe: gobuild.Recipe) -> bool:
    if recipe is kubernetes_build.RECIPE and kubernetes_build.PROGRAMS in os.environ:
        return False
    return not recipe.seldom or os.environ.get(gobuild.FULL) == "1"


def _make(recipe: gobuild.Recipe, folder: Path) -> None:
    began = time.monotonic()
    try:
        gobuild.programs(recipe, compiled=folder)
    except DriverforgeError as error:
        print(error.render(), flush=True)
    else:
        print(f"{recipe.what}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
