"""Objects that export no symbol, told from their bytes: a stand-in for make's nm.

For modversions Kbuild has nm list every object that it compiled, some kernels' twice, and looks for exported
symbols there. Few objects have any, and nm takes ten times as long to start as grep to look.
"""

from __future__ import annotations

from driverforge_driver.compile.probes import PREFIX
from driverforge_host.ports import Host

NM = f"{PREFIX}nm"
# What Kbuild looks for, up to 6.4 and from 6.5 on; such a symbol has its whole name in the object. grep that
# fails (2) says nothing: then nm is asked, and says why.
_SCRIPT = """#!/bin/sh
if [ $# = 1 ]; then
    LC_ALL=C grep -q -e __ksymtab -e __export_symbol "$1" 2>/dev/null
    [ $? != 1 ] || exit 0
fi
exec nm "$@"
"""


def stand_in(host: Host, *, work: str) -> str:
    """A program in the folder `work` to give make as its nm."""
    host.files.write_atomic(f"{work}/{NM}", _SCRIPT.encode(), mode=0o755)
    return f"{work}/{NM}"
