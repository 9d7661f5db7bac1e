"""Say what the test tiers would install and where they write.

`hack/test --list` starts it; the standard library is enough.
"""

from __future__ import annotations

import sys

from support import cache, tools
from support.upstream import goprograms


def main() -> None:
    print("hack/test installs, where a tier needs it and it is missing (apt-get, as root):")
    for tier, programs in tools.TIERS.items():
        print(f"  {tier:8} {' '.join(sorted(set(programs.values()))) or '-'}")
    print(f"now missing: {' '.join(sorted(set(tools.missing(tools.TIERS).values()))) or 'nothing'}")
    print("PyPI packages: those of the group `dev` in pyproject.toml")
    made = "; ".join(recipe.what for recipe in goprograms.RECIPES)
    print(f"Go modules, where there is a Go: those of {made}")
    print("and writes:")
    print(f"  {sys.argv[1]}/.venv   virtual environments")
    print(f"  {sys.argv[1]}/.work   reports")
    print(
        f"  {cache.root()}   packages, kernels, root file systems, saved guests, "
        "a Docker engine of its own: about 8 GB"
    )


main()
