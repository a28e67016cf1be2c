"""Runs the named benchmarks (all without a name) on services that they share, and shows what they have measured.

Each runs in a process of its own and can be run alone with further options: `python -m tests.benchmarks.append --help`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from resources.local import stack
from resources.local.lake import STORES
from tests.benchmarks._report import line, read
from tests.benchmarks._workload import services

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / ".batchmerge" / "benchmarks.json"
# In the order of the docs.
_ORDER = (
    "append",
    "fan_out",
    "upsert",
    "small_batches",
    "many_partitions",
    "latency",
    "commands",
    "memory",
    "clickhouse",
    "bigquery",
    "catch_up",
    "formats",
    "many_pipelines",
    "many_topics",
    "scaling",
    "ui",
)
PARTS = tuple(name for name in _ORDER if "import Measure, Sizes, report" in (HERE / f"{name}.py").read_text())


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work?")
    parser.add_argument("--results", type=Path, help=f"file that the figures are put into; left out: {RESULTS}")
    found = parser.parse_args(arguments)
    if unknown := [name for name in found.names if name not in PARTS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return found


def main() -> int:
    wanted = options(sys.argv[1:])
    names = wanted.names or PARTS
    results = wanted.results or (RESULTS.with_suffix(".quick.json") if wanted.quick else RESULTS)
    others = [service for service in stack.SERVICES if service not in STORES]
    available = [service.name for service in others if not service.unavailable()]
    began, codes = time.monotonic(), {}
    with services(*available) as (home, _):
        for name in names:
            print(f"\n== {name} ==", flush=True)
            size = ["--quick"] if wanted.quick else []
            command = [sys.executable, "-m", f"tests.benchmarks.{name}", *size]
            command += ["--home", str(home), "--results", str(results)]
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
