"""Runs the named benchmarks (all without a name), one after the other, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    known = sorted(p.stem for p in HERE.glob("[a-z]*.py"))
    wanted = sys.argv[1:] or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    codes = []
    for name in wanted:
        print(f"\n== {name} ==", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
