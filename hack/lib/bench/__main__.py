"""The benchmarks: ratios, measured in one run on one machine. `hack/bench` starts it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
# the checkout that is measured is this one, here and in programs that are started, whatever else is installed
sys.path[:0] = [str(TOP / folder) for folder in ("tests", "builder", "entrypoints")]
os.environ["PYTHONPATH"] = f"{TOP / 'builder'}:{TOP / 'entrypoints'}"

from rich.console import Console  # noqa: E402

from bench.result import Outcome, document, show  # noqa: E402
from bench.workshop import Workshop  # noqa: E402
from driverforge_core.errors import DriverforgeError, NotPermitted, Unavailable, Unsupported  # noqa: E402
from quickstart.report import Report  # noqa: E402

# name -> what it compares; a module of bench.benchmarks has run(workshop) -> measures; the dearest last
BENCHMARKS = {
    "plan": "a plan of 100,000 cells against one of 100",
    "probe": "`driverctl probe` against a Python that does nothing",
    "runtime": "`driverctl runtime plan` and `apply` against nvidia-ctk's",
    "mirror": "`driverforge mirror copy` between two registries against curl's plain copy and skopeo",
    "layer": "one more kernel's layer against the whole image",
    "operator": "`driverforge-operator run` with 100, 1,000 and 5,000 nodes against NVIDIA's, recorded",
    "init": "`driverctl init` without compiling, in a kernel guest, against bare modprobe",
    "compile": "our compilation and its cache against plain make, without an engine",
    "build": "our compilation against plain make and against DKMS",
}


def arguments() -> argparse.Namespace:
    told = "\n".join(f"  {name:<7} {what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="hack/bench",
        description="Measure what driverforge costs, as ratios to what it is compared to in the same run.",
        epilog=f"benchmarks:\n{told}\n\nExit status: 0 when all that were asked for ran, 1 otherwise.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument(
        "--runs",
        type=int,
        default=0,
        metavar="N",
        help="samples of each value; by default each benchmark has its own number",
    )
    parser.add_argument(
        "--smallest",
        action="store_true",
        help="one sample of the smallest input: shows that a benchmark runs, its ratios mean nothing",
    )
    parser.add_argument("--work", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument(
        "--sizes",
        default="",
        metavar="FEW,MANY",
        help="numbers of cells that `plan` compares (100,100000)",
    )
    args = parser.parse_args()
    if args.smallest and (args.runs or args.sizes):
        parser.error("--smallest has runs and sizes of its own: leave --runs and --sizes out")
    if unknown := [name for name in args.names if name not in BENCHMARKS]:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        sys.exit(os.EX_USAGE)
    return args


def measure(name: str, workshop: Workshop) -> Outcome:
    """Run one benchmark; whatever goes wrong is its outcome, and the others go on."""
    workshop.notes.clear()
    try:
        measures = tuple(import_module(f"bench.benchmarks.{name}").run(workshop))
    except (Unavailable, Unsupported, NotPermitted) as error:
        workshop.say(error.render())
        return Outcome(name=name, status="not here", why=error.brief)
    except DriverforgeError as error:
        workshop.say(error.render())
        return Outcome(name=name, status="failed", why=error.brief)
    except Exception as error:
        workshop.say(traceback.format_exc())
        return Outcome(name=name, status="failed", why=f"{type(error).__name__}: {error}")
    return Outcome(name=name, status="ran", measures=measures, notes=tuple(workshop.notes))


def main() -> int:
    args = arguments()
    sizes = args.sizes or ("32,64" if args.smallest else "100,100000")
    few, many = (int(word) for word in sizes.split(","))
    report = Report(console=Console(stderr=True, highlight=False, soft_wrap=True))
    outcomes = []
    with ExitStack() as stack:
        workshop = Workshop(
            work=args.work,
            report=report,
            stack=stack,
            runs=1 if args.smallest else args.runs,
            sizes=(few, many),
            smallest=args.smallest,
        )
        for name in args.names or BENCHMARKS:
            with report.phase(f"{name}: {BENCHMARKS[name]}"):
                outcomes.append(measure(name, workshop))
    show(outcomes)
    if args.json:
        args.json.write_text(json.dumps(document(outcomes), indent=1) + "\n")
    return int(any(outcome.status != "ran" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
