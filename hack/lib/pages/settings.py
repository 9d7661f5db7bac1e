"""Write pages of docs/ from the tables that driverctl itself reads.

These are docs/environment.md, docs/toolkit-environment.md, docs/validator-environment.md and docs/doctor.md.
"""

from __future__ import annotations

import sys

import own_python
from pages.files import ROOT, write_or_check

sys.path.insert(0, str(ROOT / "entrypoints"))


def main() -> int:
    from driverforge_driver.state import variables
    from driverforge_toolkit.doctor import presentation
    from driverforge_toolkit.toolkit import options
    from driverforge_toolkit.validate import validator_settings

    pages = {
        "docs/environment.md": variables.page(),
        "docs/toolkit-environment.md": options.page(),
        "docs/validator-environment.md": validator_settings.page(),
        "docs/doctor.md": presentation.page(),
    }
    return write_or_check(pages, __doc__)


if __name__ == "__main__":
    own_python.use()
    sys.exit(main())
