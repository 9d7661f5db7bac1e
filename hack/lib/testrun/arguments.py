"""The command line of `hack/test`.

`hack/test` runs this by itself first, before it makes anything: the standard library is enough.
"""

from __future__ import annotations

import argparse
import sys

TIERS = ("lint", "unit", "tree", "ns", "engine", "vm", "cluster")


def arguments() -> tuple[argparse.Namespace, list[str]]:
    """What is asked for, and the words after `--`. Ends the program where that cannot be."""
    words = sys.argv[1:]
    extra = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(
        prog="hack/test",
        description="Run test tiers one after another, with what they need, and end with one table.",
        epilog="after --: arguments for pytest",
    )
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"one of {', '.join(TIERS)}; all without")
    parser.add_argument("--full", action="store_true", help="the long tests too")
    args = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if unknown := set(args.tiers) - set(TIERS):
        parser.error(f"no such tier: {', '.join(sorted(unknown))} (there are {', '.join(TIERS)})")
    return args, extra


if __name__ == "__main__":
    arguments()
