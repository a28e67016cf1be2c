"""Transforms that rename topics, for sinks that name tables after topics."""

from __future__ import annotations

from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.configured import TOMBSTONE, ConfiguredTransform, TransformOptions, transforms
from jobs.connect_import.java_regex import matches, replaced
from sql import literal

_DEBEZIUM = "ByLogicalTableRouter"
ROUTERS = ("RegexRouter", _DEBEZIUM, "TopicRegexRouter")
# Those that name a topic by something else than its name, and what to do instead.
BY_RECORD = {
    "TimestampRouter": "partition the table by time instead, or route_by a column of source.transform",
    "ExtractTopic": "route_by the field",
}
# Predicates that hold for all records with a value of a topic, or for none.
_BY_NAME = ("TopicNameMatches", TOMBSTONE)


def routed(configuration: Configuration, topic: str) -> str:
    """The topic's name after the routers of the chain, after which sinks name tables.

    Raises:
        ConfigurationError: a regular expression that cannot be evaluated here.
    """
    for transform in transforms(configuration):
        if transform.kind in ROUTERS and _applies(transform, topic):
            pattern, replacement = _rule(transform.options)
            topic = replaced(pattern, replacement, topic, where=f"transforms.{transform.name}")
    return topic


def router_by_record(configuration: Configuration) -> str | None:
    """The transform that gives records of one topic different names of topics, if there is one."""
    for one in transforms(configuration):
        is_conditional = one.predicate is not None and one.predicate.kind not in _BY_NAME
        if one.kind in BY_RECORD or "route.by.field" in one.options or (one.kind in ROUTERS and is_conditional):
            return f"{one.name} ({one.kind})"
    return None


def route(chain: Chain, options: TransformOptions) -> str:
    """Changes `_topic` for later transforms. Java replaces only the first match, and only if the whole name matches."""
    pattern, replacement = _rule(options)
    topic = chain.seen("_topic")
    first = f"regexp_replace({topic}, {literal(f'^(?:{pattern})')}, {literal(replacement)})"
    whole = literal(f"^(?:{pattern})$")
    chain.metadata_now["_topic"] = f"case when {topic} rlike {whole} then {first} else {topic} end"
    if options.get("type", "").endswith(_DEBEZIUM) and options.get("key.enforce.uniqueness", "").lower() != "false":
        field = options.get("key.field.name", "__dbz__physicalTableIdentifier")
        chain.key_todo.append(
            f"{_DEBEZIUM}: added {field}, which tells topics apart, to the record's key; here rows of several topics "
            "with one key are one row: where topics share a table and keys, make that column in source.transform, of "
            "_topic, and name it in changes.key, with source: value"
        )
    return "tables[].table and route: worked out for each topic"


def _rule(options: TransformOptions) -> tuple[str, str]:
    """The router's regular expression and replacement."""
    regex = options.get("regex") or options.get("topic.regex", "")
    return regex, options.get("replacement") or options.get("topic.replacement", "")


def _applies(router: ConfiguredTransform, topic: str) -> bool:
    """Whether the router applies to the topic; other conditions than on its name are left to a person."""
    predicate = router.predicate
    if predicate is None or predicate.kind not in _BY_NAME:
        return True
    where = f"predicates.{predicate.name}.pattern"
    holds = predicate.kind != TOMBSTONE and matches(predicate.options.get("pattern", ""), topic, where)
    return holds != predicate.negated
