"""The continuous run (`interval`): it lands and merges every few seconds, and is renewed about once an hour.

::

    sensor ──starts, renews──> run ─┬─ landing     every `interval`: what is new in Kafka; rings
                                    └─ each table  when it rings: what is landed, at the table's own pace
                                             (`commit: together`: one step for all tables, in one commit)

Batches, protocol and crash points are those of any run: its steps call the same functions of the engine, and hold the
pool of their table only while they work on it. It materializes its assets soon at first, then every five minutes, so
that Dagster's pages stay quick. The run that was requested last goes on; an older one ends when it sees that the newer
one works.
"""

from orchestration import components  # noqa: F401  its component imports this package: it has to be loaded first
