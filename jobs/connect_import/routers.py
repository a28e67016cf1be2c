"""Transforms that rename topics, for sinks that name tables by them."""

from __future__ import annotations

from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.configured import Options, Transform, transforms
from jobs.connect_import.java_regex import matches, replaced
from jobs.connect_import.predicates import TOMBSTONE
from sql import literal

ROUTERS = ("RegexRouter", "ByLogicalTableRouter", "TopicRegexRouter")


def routed(configuration: Configuration, topic: str) -> str:
    """The topic's name after the routers of the chain, which sinks name tables by.

    Raises:
        ConfigurationError: a regular expression that cannot be followed.
    """
    for transform in transforms(configuration):
        if transform.kind in ROUTERS and _applies(transform, topic):
            pattern, replacement = _rule(transform.options)
            topic = replaced(pattern, replacement, topic, where=f"transforms.{transform.name}")
    return topic


def route(chain: Chain, options: Options) -> str:
    """Later transforms see the new name. Java replaces the first match only, and only where all of the name matches."""
    pattern, replacement = _rule(options)
    topic = chain.seen("_topic")
    first = f"regexp_replace({topic}, {literal(f'^(?:{pattern})')}, {literal(replacement)})"
    whole = literal(f"^(?:{pattern})$")
    chain.metadata_now["_topic"] = f"case when {topic} rlike {whole} then {first} else {topic} end"
    return "tables[].table and route: worked out for each topic"


def _rule(options: Options) -> tuple[str, str]:
    """Regular expression and replacement."""
    regex = options.get("regex") or options.get("topic.regex", "")
    return regex, options.get("replacement") or options.get("topic.replacement", "")


def _applies(router: Transform, topic: str) -> bool:
    """Beforehand only the names of topics are known; what else a predicate asks is left to a person."""
    predicate = router.predicate
    if predicate is None or predicate.kind not in ("TopicNameMatches", TOMBSTONE):
        return True
    where = f"predicates.{predicate.name}.pattern"
    holds = predicate.kind != TOMBSTONE and matches(predicate.options.get("pattern", ""), topic, where)
    return holds != predicate.negated
