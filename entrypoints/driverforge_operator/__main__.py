"""The program `driverforge-operator`; says what is missing where the extra `operator` was not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from driverforge_core.errors import Unsupported

PACKAGES = ("click", "httpx2", "msgspec", "pydantic", "yaml")


def main() -> None:
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        error = Unsupported(
            "this installation has no operator",
            details=[f"Python has no {', '.join(missing)}"],
            resolution="pip install '.[operator]' in a checkout of driverforge",
        )
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
    from driverforge_operator import cli

    cli.main()


if __name__ == "__main__":
    main()
