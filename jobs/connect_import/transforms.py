"""The chain of transforms of a connector, as an envelope, a `source.transform` and topics under new names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.connect_import.chain import Chain, name
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.known import struct_columns
from jobs.connect_import.steps import STEPS, Options, renames_of
from jobs.connect_import.unwrapping import TARGET, UNWRAPPING, drops_deletes, rewrites_deletes
from sql import literal

ROUTERS = ("RegexRouter", "ByLogicalTableRouter", "TopicRegexRouter")
_OTHERS = {
    **dict.fromkeys(ROUTERS, "tables[].table and route: worked out for each topic"),
    **dict.fromkeys(("DropHeaders", "InsertHeader", "HeaderFrom"), "not needed any more: tables have no headers"),
    "SetSchemaMetadata": "not needed any more: a schema's name means nothing to a table",
}
_INSTEAD = {
    "TimestampRouter": "partition the table by time instead, or route_by a column of source.transform",
    "ExtractTopic": "route_by the field",
}


@dataclass(frozen=True)
class Followed:
    """What the transforms come to.

    Attributes:
        chain: of the columns.
        steps: what became of each transform.
        drops_deletes: the sink never heard of deleted rows.
    """

    chain: Chain
    steps: list[str]
    drops_deletes: bool = False


def follow(configuration: Configuration, columns: Mapping[str, str]) -> Followed:
    """Follows the chain over records of these columns."""
    chain, steps, dropped = Chain(dict(columns)), [], False
    for step in configuration.items("transforms"):
        options = configuration.below(f"transforms.{step}.")
        kind = _short(options.get("type", ""))
        steps.append(f"{step} ({kind}): {_apply(chain, kind, options, configuration)}")
        dropped |= kind == "ExtractNewRecordState" and drops_deletes(options)
        if kind == "ExtractNewRecordState" and rewrites_deletes(options):
            chain.todo.append(
                f"{step}: a deleted row came as a row with __deleted; a table of mode append leaves deletes out, one "
                "of mode upsert_delete (with changes.key) removes the row"
            )
    _lift(chain, configuration)
    return Followed(chain, steps, dropped)


def before(configuration: Configuration, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of the records, from those of the tables that the connector has filled."""
    found = dict(columns)
    for step in reversed(configuration.items("transforms")):
        options = configuration.below(f"transforms.{step}.")
        kind = _short(options.get("type", ""))
        probe = Chain({})
        if kind in ("InsertField", "CopyValue", "KeyToValue", "KafkaMetadataTransform"):
            STEPS[kind](probe, options)
            found = {c: k for c, k in found.items() if c not in probe.made or c in probe.columns}
        elif kind == "ReplaceField":
            old = {new: was for was, new in renames_of(options).items()}
            found = {old.get(c, c): k for c, k in found.items()}
        elif kind == "TimestampConverter" and (column := options.get("field", "")) in found:
            converted = options.get("target.type", "").lower() in ("string", "unix")
            found[column] = "timestamp" if converted else "string" if options.get("format") else found[column]
        elif kind == "HoistField" and len(found) == 1 and (inner := struct_columns(next(iter(found.values())))):
            found = inner
        elif kind in ("DebeziumTransform", "DmsTransform"):
            found.pop("_cdc", None)
    return found


def routed(configuration: Configuration, topic: str) -> str:
    """The topic's name after the routers of the chain, which sinks name tables by."""
    for step in configuration.items("transforms"):
        options = configuration.below(f"transforms.{step}.")
        if _short(options.get("type", "")) not in ROUTERS or not _holds(configuration, options, topic):
            continue
        pattern = options.get("regex") or options.get("topic.regex", "")
        replacement = options.get("replacement") or options.get("topic.replacement", "")
        # As Java's matcher.matches() and replaceFirst: the whole name, groups by $1 or ${name}.
        by_number = re.sub(r"\$(\d+)", r"\\g<\1>", replacement)
        topic = re.sub(rf"\A(?:{pattern})\Z", re.sub(r"\$\{(\w+)\}", r"\\g<\1>", by_number), topic, count=1)
    return topic


def _apply(chain: Chain, kind: str, options: Options, configuration: Configuration) -> str:
    if kind in UNWRAPPING:
        return UNWRAPPING[kind](chain, options)
    if kind == "Filter":
        return _filter(chain, options, configuration)
    if kind in STEPS and not options.get("type", "").endswith("$Key"):
        return _step(chain, kind, options, configuration)
    if kind not in STEPS and kind not in _OTHERS:
        chain.todo.append(f"{kind}: {_INSTEAD.get(kind, 'nothing stands in for it; see docs/transforms.md')}")
        return "see below"
    return _OTHERS.get(kind, "of the key: its columns are named in source.key and changes.key")


def _step(chain: Chain, kind: str, options: Options, configuration: Configuration) -> str:
    was = dict(chain.made)
    done = STEPS[kind](chain, options)
    chain.keep_operation()
    if condition := _condition(configuration, options):
        chain.only_when(condition, was)
    return done


def _filter(chain: Chain, options: Options, configuration: Configuration) -> str:
    if not options.get("predicate"):
        chain.todo.append(f"Filter by {_said(options)}: say it in SQL, `where` in source.transform")
        return "see below"
    if _predicate(configuration, options).get("type", "").endswith("RecordIsTombstone"):
        return "records without a value delete a row in modes upsert_delete and delete, and are left out in the others"
    condition = _condition(configuration, options)
    if condition:
        chain.conditions.append(f"not {condition}")
    return "source.transform"


def _condition(configuration: Configuration, options: Options) -> str:
    """The predicate of a transform in SQL; empty where it always holds (a tombstone is never transformed)."""
    given = _predicate(configuration, options)
    kind = _short(given.get("type", ""))
    found = ""
    if kind == "TopicNameMatches":
        found = f"(_topic rlike {literal('^(?:' + given.get('pattern', '') + ')$')})"
    elif kind == "HasHeaderKey":
        found = f"exists(_headers, h -> h.key = {literal(given.get('name', ''))})"
    elif kind == "RecordIsTombstone":
        return "" if _negated(options) else "false"
    return f"(not {found})" if found and _negated(options) else found


def _negated(options: Options) -> bool:
    return options.get("negate", "").lower() == "true"


def _predicate(configuration: Configuration, options: Options) -> dict[str, str]:
    named = options.get("predicate")
    return configuration.below(f"predicates.{named}.") if named else {}


def _holds(configuration: Configuration, options: Options, topic: str) -> bool:
    """Whether a router applies to a topic: only predicates of its name are known beforehand."""
    given = _predicate(configuration, options)
    if not given.get("type", "").endswith("TopicNameMatches"):
        return True
    return (re.fullmatch(given.get("pattern", ""), topic) is not None) != _negated(options)


def _lift(chain: Chain, configuration: Configuration) -> None:
    """`_cdc.op` of the sinks' transforms becomes a column of its own, which an op mapping can name."""
    field = configuration.text("iceberg.tables.cdc-field")
    if "." in field and chain.envelope is None:
        struct, *parts = field.split(".")
        chain.read(struct, f"struct<{': struct<'.join(parts)}: string{'>' * len(parts)}")
        chain.make("_op", name((struct, *parts)), "string")


def route_field(configuration: Configuration, chain: Chain) -> str:
    """The sink's route field as a column of the result."""
    field = configuration.text("iceberg.tables.route-field")
    return TARGET if field == "_cdc.target" and TARGET in chain.made else field


def debezium_target(configuration: Configuration) -> str | None:
    """The pattern of table names of Tabular's transform for Debezium, where the sink routes by it; else None."""
    for step in configuration.items("transforms"):
        options = configuration.below(f"transforms.{step}.")
        if _short(options.get("type", "")) == "DebeziumTransform":
            routes = configuration.text("iceberg.tables.route-field") == "_cdc.target"
            return options.get("cdc.target.pattern", "{db}.{table}") if routes else None
    return None


def _said(options: Options) -> str:
    return next((v for k, v in options.items() if "condition" in k), "nothing")


def _short(kind: str) -> str:
    return kind.rsplit(".", 1)[-1].split("$", maxsplit=1)[0]
