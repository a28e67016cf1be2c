"""What a benchmark says: measures, printed as lines and kept as JSON, from which the tables of the docs are made."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, ConfigDict

Unit = Literal["records/s", "rows/s", "s", "CPU s", "CPU s per million", "MB", "commits/s", "times"]
# Of an option: in full, and with --quick.
Size = tuple[int, int] | tuple[Sequence[int], Sequence[int]] | tuple[Sequence[str], Sequence[str]]
Sizes = dict[str, Size]
ROOT = Path(__file__).parents[2]
_PACKAGES = ("dagster", "pyspark", "pyarrow", "pyiceberg", "confluent-kafka", "clickhouse-connect")
_DIGITS = {"s": 2, "times": 2, "CPU s": 1, "CPU s per million": 1}


class Measure(BaseModel):
    """One line: so many turns of one thing, in one unit.

    Attributes:
        what: what was done, with its size, as the docs' table says it: "append of 5,000,000 records, default settings".
        turns: one figure for each turn; the median is shown, and the least and the most.
        beside: the same of others, measured in the same run, by what they are.
        headline: README shows it too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    what: str
    unit: Unit
    turns: tuple[float, ...]
    beside: dict[str, tuple[float, ...]] = {}
    headline: bool = False


class Part(BaseModel):
    """What one benchmark has measured, and on what.

    Attributes:
        load: of the machine when it began, by its own account (runnable processes, mean of a minute).
        seconds: that all of it took.
        about: what was done, in the benchmark's own words of then; empty in parts that were kept before there was this.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    began: datetime
    seconds: float
    load: float
    sizes: dict[str, int | list[int] | list[str]]
    commit: str
    machine: str
    versions: dict[str, str]
    measures: tuple[Measure, ...]
    about: str = ""


class Results(BaseModel):
    """The parts of one run or of several, by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    parts: dict[str, Part] = {}


def report(about: str | None, measure: Callable[[argparse.Namespace], Iterable[Measure]], sizes: Sizes) -> None:
    """The whole `main` of a benchmark: reads its options, measures, prints each line as soon as it is there.

    Args:
        about: the module's docstring.
        measure: gets the options: `home` (data folder of a running stack, or None: start services of its own), `quick`,
            and one for each size.
        sizes: what an option of that name can change: `{"rows": (1_000_000, 10_000), "table_rows": ([…], […])}`.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work?")
    parser.add_argument("--home", type=Path, help="data folder of a running stack; left out: services of its own")
    parser.add_argument("--results", type=Path, help="put what was measured into this file")
    for name, (full, quick) in sizes.items():
        values = full if isinstance(full, Sequence) else [full]
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(values[0]),
            nargs="*" if isinstance(full, Sequence) else None,
            help=f"in place of {full}; with --quick of {quick}",
        )
    options = parser.parse_args()
    for name, (full, quick) in sizes.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
    began, clock, load = datetime.now(UTC), time.monotonic(), os.getloadavg()[0]
    measures = []
    for one in measure(options):
        print(line(one), flush=True)
        measures.append(one)
    if options.results:
        name = Path(sys.argv[0]).stem
        part = Part(
            name=name,
            began=began.replace(microsecond=0),
            seconds=round(time.monotonic() - clock),
            load=round(load, 1),
            sizes={size: getattr(options, size) for size in sizes},
            commit=_commit(),
            machine=_machine(),
            versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
            measures=tuple(rounded(one) for one in measures),
            about=(about or "").strip(),
        )
        results = read(options.results)
        write(options.results, Results(parts={**results.parts, name: part}))


def read(path: Path) -> Results:
    return Results.model_validate_json(path.read_text()) if path.exists() else Results()


def write(path: Path, results: Results) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(results.model_dump_json(indent=1) + "\n")


def line(one: Measure) -> str:
    """As it is printed: what, median, least to most, and what is beside it."""
    beside = "".join(f"\n    {who}: {shown(turns, one.unit)}" for who, turns in one.beside.items())
    return f"{one.what}: {shown(one.turns, one.unit)}{beside}"


def shown(turns: Sequence[float], unit: Unit) -> str:
    """``1.24 s (1.20 to 1.31)``; a single turn has no spread, and two turns have no median, which it shows."""
    if not turns:
        return "not measured: too short"
    two = ", of 2" if len(turns) == 2 else ""
    spread = f" ({_figure(min(turns), unit)} to {_figure(max(turns), unit)}{two})" if len(turns) > 1 else ""
    return f"{_figure(statistics.median(turns), unit)} {unit}{spread}"


def _figure(value: float, unit: Unit) -> str:
    return f"{value:,.{_DIGITS.get(unit, 0)}f}"


def rounded(one: Measure) -> Measure:
    """With the digits that say something."""

    def short(turns: Iterable[float]) -> tuple[float, ...]:
        return tuple(float(f"{turn:.4g}") for turn in turns)

    return one.model_copy(
        update={"turns": short(one.turns), "beside": {who: short(turns) for who, turns in one.beside.items()}}
    )


def _commit() -> str:
    """The checkout's commit, with a mark where files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "no checkout"


def _machine() -> str:
    """Cores, processor, memory, system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((text.split(": ", 1)[1] for text in lines if text.startswith("model name")), platform.machine())
    memory = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GB, {system}"
