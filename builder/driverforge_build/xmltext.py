"""Text for XML: a kernel's log or a program's output may have what no XML document may."""

from __future__ import annotations

import re

# what XML 1.0 cannot have in any form, not even as references ("Char" of its grammar)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def allowed(text: str, *, instead: str) -> str:
    """The text with a character `instead` of each that XML forbids."""
    return _FORBIDDEN.sub(instead, text)
