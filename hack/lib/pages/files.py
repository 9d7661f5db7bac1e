"""Files that are made from tables of the code: written where they differ, or compared with `--check`."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def write_or_check(files: Mapping[str, str], description: str | None) -> int:
    """Run a generator's command line for its files, by path below the checkout. Returns the exit status.

    Each file that differs is named: written, or with `--check` shown as a difference, and the status is 1.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 and show the difference where a file is not up to date",
    )
    check = parser.parse_args().check
    stale = {name: text for name, text in files.items() if _text(ROOT / name) != text}
    for name, text in stale.items():
        if check:
            old = (_text(ROOT / name) or "").splitlines(keepends=True)
            sys.stdout.writelines(
                difflib.unified_diff(old, text.splitlines(keepends=True), name, "generated")
            )
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return 1 if check and stale else 0


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
