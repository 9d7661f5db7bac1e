"""The program `driverforge`.

It says what is missing where only the toolkit half was installed: without the extra `build` there is no click
to say so.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from driverforge_build.commands.shared.output import report, wants_json
from driverforge_core.errors import Unsupported

PACKAGES = ("click", "jinja2", "yaml")


def missing_packages() -> Unsupported | None:
    """What this installation lacks; None where `driverforge` can run."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if not missing:
        return None
    return Unsupported(
        "this installation has no builder",
        details=[f"Python has no {', '.join(missing)}"],
        resolution="pip install '.[build]' in a checkout of driverforge",
    )


def main() -> None:
    if lacking := missing_packages():
        sys.exit(report(lacking, as_json=wants_json(sys.argv[1:])))
    from driverforge_build import cli

    cli.main()


if __name__ == "__main__":
    main()
