"""Write pages of docs/ from the tables that driverctl itself reads.

These are docs/environment.md, docs/toolkit-environment.md, docs/validator-environment.md and docs/doctor.md.
"""

from __future__ import annotations

import sys

import own_python
from pages.files import ROOT, write_or_check

sys.path.insert(0, str(ROOT / "entrypoints"))


def main() -> int:
    from pages.tables import contents

    return write_or_check(contents(), __doc__)


if __name__ == "__main__":
    own_python.use()
    sys.exit(main())
