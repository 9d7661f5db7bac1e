"""Documents of a pipeline in which every text that comes from elsewhere is markup."""

from __future__ import annotations

from typing import Any

from driverforge_build.report.coverage import Documents
from support.samples.coverages import NODE, READY, covered_image, shipped_plan

TAKEN = (
    "</script><script>document.title='taken'</script>\"'></td></table><img src=http://evil.test/ "
    "onerror=document.title=1><style>*{display:none}</style>{{ 7 * 7 }}\u202e\x1b[31m"
)

# words of closed lists, and what parts of a plan know each other by
_KEPT = ("verdict", "source", "os", "arch", "kernel")


def hostile_documents(text: str = TAKEN) -> Documents:
    """The shipped matrix's plan and two covered images, `text` in all that it says."""
    plan: Any = _hostile(shipped_plan(there=[READY]), text)
    image: Any = _hostile(covered_image(READY), text)
    stranger: Any = {**image, "os": text, "arch": text, "driver": text}
    return Documents(plan=plan, covered={NODE: [image], f"6.1{text}": [image, stranger]})


def _hostile(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return value + text
    if isinstance(value, list):
        return [_hostile(one, text) for one in value]
    if isinstance(value, dict):
        return {key: one if key in _KEPT else _hostile(one, text) for key, one in value.items()}
    return value
