"""The imported pipeline as text: the pipeline file, the connections' entries, and the report about options."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from jobs.connect_import.building import Imported
from jobs.connect_import.options import OptionStatus
from jobs.spec.pipeline_file import TYPE

_TITLES = {
    OptionStatus.EQUIVALENT: "These have an equivalent:",
    OptionStatus.NOT_NEEDED: "These are not needed any more:",
    OptionStatus.NONE: "These have no equivalent:",
}
_START = "\n    start:\n"
_KEEP = "# Keep this: it tells a replay from Kafka which records the connector has written."


def pipeline_file(imported: Imported) -> str:
    """The text of `defs.yaml`."""
    head = f"type: {TYPE}\n"
    if imported.todo:
        head = "".join(f"# To do: {line}\n" for line in imported.todo) + head
    text = _yaml({"attributes": imported.document})
    if "start" in imported.document["source"]:
        text = text.replace(_START, f"\n    {_KEEP}{_START}", 1)
    return head + text


def connections_file(imported: Imported) -> str:
    """Entries for the connections file."""
    return _yaml({"connections": imported.connections})


def report(imported: Imported) -> Iterator[str]:
    """The report about every option, line by line."""
    for status, title in _TITLES.items():
        reports = {name: option for name, option in imported.reports.items() if option.status is status}
        if reports:
            yield title
            width = max(map(len, reports))
            yield from (f"  {name:<{width}}  {option.text}" for name, option in reports.items())
    if imported.steps:
        yield "Transforms:"
        yield from (f"  {line}" for line in imported.steps)
    if imported.todo:
        yield "To do:"
        yield from (f"  {line}" for line in imported.todo)


def _yaml(document: dict[str, object]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
