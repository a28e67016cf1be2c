"""Puts what was measured into the docs: `docs/benchmarks.json`, and from it the tables in the pages.

`python -m tests.benchmarks.publish [RESULTS]`: takes over the parts of this file (that of `make bench`), in place of
those before. The tables are never written by hand; `tests/unit/docs/test_benchmarks.py` compares them. The text of
a part is what its benchmark printed when it was measured, and which of its sizes are not those of `make bench` today.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks import sizing
from tests.benchmarks.__main__ import PARTS, RESULTS
from tests.benchmarks._report import ROOT, Measure, Part, Results, Sizes, read, shown, write

KEPT = ROOT / "docs" / "benchmarks.json"
BEGIN, END = "<!-- figures: begin (python -m tests.benchmarks.publish) -->", "<!-- figures: end -->"
_HEAD = "| what | median (least to most) | compared with (same run) |\n| --- | --- | --- |"


def main() -> None:
    new, kept = read(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS).parts, read(KEPT).parts
    if unknown := [name for name, part in new.items() if part.commit.endswith("-dirty") and part != kept.get(name)]:
        sys.exit(f"measured with changes that no commit has: {', '.join(unknown)}; commit them and measure again")
    known = {**kept, **new}
    write(KEPT, Results(parts={name: known[name] for name in PARTS if name in known}))
    for page, text in pages(read(KEPT)).items():
        page.write_text(text)


def pages(results: Results) -> dict[Path, str]:
    """The pages with their tables as they should be."""
    docs = ROOT / "docs"
    tables = {
        docs / "benchmarks.md": in_full(results),
        docs / "scale.md": sizing.tables(results),
        ROOT / "README.md": headlines(results),
    }
    return {page: _between(page.read_text(), table) for page, table in tables.items()}


def _between(text: str, table: str) -> str:
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"


def headlines(results: Results) -> str:
    return _table(one for part in results.parts.values() for one in part.measures if one.headline)


def in_full(results: Results) -> str:
    return "\n\n".join([*_where(results), *(text for part in results.parts.values() for text in _section(part))])


def _section(part: Part) -> Iterator[str]:
    """Title, what was done (the benchmark's own words), with which sizes if not the usual ones, table."""
    benchmark = importlib.import_module(f"tests.benchmarks.{part.name}")
    yield f"### {part.name}"
    yield part.about or (benchmark.__doc__ or "").strip()
    if others := [*_others(part.sizes, benchmark.SIZES)]:
        yield f"Measured with other sizes than today's: {'; '.join(others)}."
    yield _table(part.measures)


def _others(sizes: Mapping[str, object], today: Sizes) -> Iterator[str]:
    """Those that differ."""
    for name, (full, _) in today.items():
        if name not in sizes:
            yield f"without `{name}`, which is {_size(full)} now"
        elif sizes[name] != full:
            yield f"`{name}` {_size(sizes[name])} in place of {_size(full)}"


def _size(value: object) -> str:
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return ", ".join(f"{one:,}" if isinstance(one, int) else str(one) for one in values)


def _table(measures: Iterable[Measure]) -> str:
    return "\n".join([_HEAD, *map(_row, measures)])


def _row(one: Measure) -> str:
    beside = "; ".join(f"{who}: {shown(turns, one.unit)}" for who, turns in one.beside.items())
    return f"| {one.what} | {shown(one.turns, one.unit)} | {beside} |"


def _where(results: Results) -> Iterator[str]:
    """On what, of which commit and when: one paragraph for all parts that have this in common."""
    found: dict[str, list[str]] = {}
    for part in results.parts.values():
        versions = ", ".join(f"{name} {version}" for name, version in part.versions.items())
        on = f"{part.machine}; {versions}; commit `{part.commit}`, {part.began:%Y-%m-%d}"
        found.setdefault(on, []).append(f"{part.name} ({part.seconds:.0f} s, load before it {part.load})")
    for on, names in found.items():
        yield f"{on}: {', '.join(names)}."


if __name__ == "__main__":
    main()
