"""Runs the named benchmarks (all without a name) on services that they share, and shows what they have measured.

Each runs in a process of its own and can be run alone with further options: `python -m tests.benchmarks.append --help`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from resources.local import stack
from tests.benchmarks._report import line, read
from tests.benchmarks._workload import services

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / ".batchmerge" / "benchmarks.json"
# Those that report; the others are joined one by one.
PARTS = tuple(sorted(p.stem for p in HERE.glob("[a-z]*.py") if "import Measure, report" in p.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work?")
    parser.add_argument("--results", type=Path, help=f"file that the figures are put into; left out: {RESULTS}")
    wanted = parser.parse_args()
    names = wanted.names or PARTS
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(PARTS)}")
    results = wanted.results or (RESULTS.with_suffix(".quick.json") if wanted.quick else RESULTS)
    available = [service.name for service in stack.SERVICES if service.name != "s3" and not service.unavailable()]
    began, codes = time.monotonic(), {}
    with services(*available) as (home, _):
        for name in names:
            print(f"\n== {name} ==", flush=True)
            options = [*(["--quick"] if wanted.quick else []), "--home", str(home), "--results", str(results)]
            command = [sys.executable, "-m", f"tests.benchmarks.{name}", *options]
            codes[name] = subprocess.run(command, check=False).returncode
    parts = read(results).parts
    for name in names:
        if name in parts and not codes[name]:
            print(f"\n== {name} ({parts[name].seconds:.0f} s) ==", *map(line, parts[name].measures), sep="\n")
    failed = ", ".join(name for name, code in codes.items() if code) or "none"
    print(f"\n{time.monotonic() - began:.0f} s; failed: {failed}; figures are in {results}")
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main())
