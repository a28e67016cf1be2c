"""The `overrides` of a pipeline file with `for_each`: other options for some of its topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from jobs.spec.base import Spec
from resources.config_files.mistakes import Mistake, did_you_mean

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

# The characters of topic names; a key of `overrides` with other characters is a regular expression.
_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Override(Spec):
    """Other options for a topic, in the form of the file: groups of options are merged, values replaced."""

    leave_out: bool = Field(False, description="true: the topic is not read")
    source: dict[str, Any] = Field(
        default_factory=dict, description="for example `{key: {columns: …}, value: {columns: …}, start: latest}`"
    )
    changes: dict[str, Any] = Field(
        default_factory=dict, description="for example `{key: {columns: [order_id, line]}, order_by: version}`"
    )
    tables: dict[str, Any] | list[dict[str, Any]] = Field(
        default_factory=dict,
        description="a map holds for every table of the topic, for example `{mode: append}`; a list replaces `tables`, "
        "entry by entry",
    )
    batch: dict[str, Any] = Field(default_factory=dict, description="for example `{max_records: 1000}`")
    route_by: str | None = Field(None, description="as in the file itself")
    on_bad_record: str | None = Field(None, description="as in the file itself")
    force_optional: bool | None = Field(None, description="as in the file itself")


def applying(spec: PipelineSpec, topic: str) -> dict[str, Override]:
    """The overrides for this topic, in the order in which they take effect: the topic's own name comes last."""
    matching = {name: one for name, one in spec.overrides.items() if _is_expression(name) and re.fullmatch(name, topic)}
    return {**matching, **({topic: spec.overrides[topic]} if topic in spec.overrides else {})}


def with_overrides(spec: PipelineSpec, document: Mapping[str, Any], overrides: Iterable[Mapping[str, Any]]) -> Any:
    """The document with these overrides. Groups of options (models) are merged, everything else is replaced."""
    found: Any = dict(document)
    for override in overrides:
        tables = override.get("tables") or {}
        groups = {name: value for name, value in override.items() if name not in ("tables", "leave_out")}
        found = _merged(spec, found, groups)
        if isinstance(tables, list):
            found["tables"] = tables
        elif tables:
            found["tables"] = [
                _merged(spec.tables[n] if n < len(spec.tables) else None, table, tables)
                for n, table in enumerate(found["tables"])
            ]
    return found


def override_mistakes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Mistakes: overrides without effect."""
    if spec.overrides and spec.source.for_each is None:
        what = "all topics together have one set of options"
        yield Mistake(("overrides",), what, "set `source.for_each: topic`", at_key=True)
        return
    for name, one in spec.overrides.items():
        if isinstance(one.tables, list) and len(one.tables) != len(spec.tables):
            what = f"it has {len(one.tables)} entries, and `tables` of the file has {len(spec.tables)}"
            yield Mistake(("overrides", name, "tables"), what, "write one for each of them, in the same order")
        try:
            re.compile(name)
        except re.error as problem:
            yield Mistake(("overrides", name), f"it is not a regular expression: {problem}", at_key=True)
            continue
        if not _is_expression(name) and not spec.source.may_have(name):
            remedy = did_you_mean(name, spec.source.topics) or "name a topic that `source.pattern` matches"
            yield Mistake(("overrides", name), f"{name} is not a topic of the source", remedy, at_key=True)


def _is_expression(name: str) -> bool:
    return _NAME.fullmatch(name) is None


def _merged(model: BaseModel | None, document: Any, override: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(document)
    for name, value in override.items():
        below = getattr(model, name, None) if model is not None else None
        if isinstance(below, BaseModel) and isinstance(value, dict) and isinstance(found.get(name), dict):
            found[name] = _merged(below, found[name], value)
        else:
            found[name] = value
    return found
