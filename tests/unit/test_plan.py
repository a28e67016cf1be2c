"""What the next batch is: shares, starts, and every refusal."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from jobs.batch import Batch, CommittedState
from jobs.members.topics import states_of
from jobs.offsets import OffsetRange, Offsets, TopicPartition
from jobs.pipeline import Pipeline
from jobs.planning.first_offsets import first_offsets
from jobs.planning.plan import TopicState, bound, partitions_with_new_leader, plan_batch, refuse_cut_off
from jobs.planning.topic_state import topic_state
from jobs.spec.source import FromTimestamp
from resources.connections import Connections, KafkaConnection
from resources.errors import LineageBroken, OffsetsGone, SourceError, TopicMissing, TopicRecreated
from resources.kafka import KafkaCluster
from tests.kit import specs
from tests.kit.batches import P0, P1, TOPIC_IDS, committed
from tests.kit.lake import lake_connection
from tests.kit.waiting import until

KAFKA = KafkaConnection(kind="kafka", bootstrap_servers="nowhere:1")
P2, U0 = TopicPartition("t", 2), TopicPartition("u", 0)


def test_what_kafka_has_counts_as_of_the_moment_before_it_was_asked() -> None:
    """Records that come while it answers, or before the batch is planned, must not count as landed."""
    before, called = int(time.time() * 1000), list[int]()

    class Kafka:
        def describe(self, _: object) -> tuple[dict[str, str], list[TopicPartition]]:
            called.append(int(time.time() * 1000))
            until(lambda: time.time() * 1000 > called[0] + 1, what="a millisecond after the call")
            return TOPIC_IDS, [P0]

        def stable_ends(self, _: object) -> tuple[Offsets, dict[TopicPartition, int]]:
            return {P0: 7}, {}

        def first_offsets(self, _: object) -> Offsets:
            return {P0: 0}

    found = topic_state(Kafka(), ["t"])  # type: ignore[arg-type]
    assert before <= found.asked_at <= called[0]
    assert found.by_topic()["t"].asked_at == found.asked_at
    assert found == replace(found, asked_at=1), "nothing is new"


def test_first_offsets_are_asked_only_where_something_waits() -> None:
    asked = list[list[TopicPartition]]()

    class Kafka:
        def describe(self, _: object) -> tuple[dict[str, str], list[TopicPartition]]:
            return TOPIC_IDS, [P0, P1, P2]

        def stable_ends(self, _: object) -> tuple[Offsets, dict[TopicPartition, int]]:
            return {P0: 7, P1: 9, P2: 4}, {}

        def first_offsets(self, wanted: list[TopicPartition]) -> Offsets:
            asked.append(wanted)
            return dict.fromkeys(wanted, 3)

    kafka: Any = Kafka()
    found = topic_state(kafka, ["t"], {P0: 7, P1: 8})
    assert found.first == {P0: 7, P1: 3, P2: 3}, "a new partition is asked for as well"
    assert topic_state(kafka, ["t"], {P0: 7, P1: 9, P2: 4}).first == found.stable
    assert topic_state(kafka, ["t"]).first == {P0: 3, P1: 3, P2: 3}
    assert asked == [[P1, P2], [P0, P1, P2]]
    state = replace(committed(1), offsets={P0: 7, P1: 8}, topic_ids=TOPIC_IDS)
    assert found.is_as_new_as(state)
    assert not found.is_as_new_as(replace(state, offsets={P0: 6, P1: 8})), "reset since: ask for what is there"


def test_topics_without_a_leader_cost_the_others_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take the time limit, one after the other, before a record of any topic is read."""
    monkeypatch.setattr("resources.kafka._LEADERS_COME", 0.0)
    names = [f"t{number}" for number in range(300)]
    away, gone, asked = {"t1", "t2"}, "t3", list[set[str]]()

    class Admin:
        def describe_topics(self, wanted: Any, **_: Any) -> dict[str, Future[Any]]:
            return {name: self._described(name) for name in wanted.topic_names}

        def _described(self, name: str) -> Future[Any]:
            future = Future[Any]()
            leader = None if name in away else SimpleNamespace(id=1)
            if name == gone:
                future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
            else:
                future.set_result(SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(id=0, leader=leader)]))
            return future

    class Asked:
        def offsets_for_times(self, wanted: list[Any], **_: Any) -> list[Any]:
            asked.append({tp.topic for tp in wanted})
            answer = {"offset": 7, "leader_epoch": None, "error": None}
            return [SimpleNamespace(topic=tp.topic, partition=tp.partition, **answer) for tp in wanted]

    kafka = KafkaCluster("kafka", KAFKA)
    vars(kafka).update(_admin=Admin(), _consumer=Asked())
    states, failed = states_of(kafka, names)
    assert (set(failed), len(asked)) == ({*away, gone}, 4), "a request for at most 250 partitions, and two of each"
    assert set(states) == set().union(*asked) == set(names) - failed.keys()
    assert "partitions without a leader: 0" in str(failed["t1"])
    assert isinstance(failed[gone], TopicMissing)


def test_named_topics_are_not_looked_for_among_all(tmp_path: Path) -> None:
    """The list of a large cluster takes longer than the batch."""

    def list_topics(**_: object) -> None:
        raise AssertionError("asked for all topics")

    connections = Connections({"kafka": KAFKA, "lake": lake_connection(tmp_path)}, "test")
    named = Pipeline("p", specs.spec(source={"topics": ["b", "a"]}), connections)
    vars(named.kafka).update(_admin=SimpleNamespace(list_topics=list_topics))
    assert named.topics() == ["a", "b"]


def topics(
    stable: dict[TopicPartition, int], first: dict[TopicPartition, int] | None = None, ids: dict[str, str] | None = None
) -> TopicState:
    return TopicState({**dict.fromkeys(stable, 0), **(first or {})}, stable, ids or TOPIC_IDS)


def plan(
    state: CommittedState | None,
    kafka: TopicState,
    max_records: int = 1000,
    highest: int | None = None,
    start: Callable[[list[TopicPartition]], Offsets] | None = None,
    **options: bool,
) -> Batch | None:
    return plan_batch(
        pipeline="p",
        meaning_hash="hash",
        committed=state,
        highest_known=highest if highest is not None else state.batch_number if state else 0,
        topics=kafka,
        start=start or (lambda new: {tp: kafka.first[tp] for tp in new}),
        max_records=max_records,
        now=1234,
        **options,
    )


def test_first_batch_reads_from_the_start_to_the_last_stable_offsets() -> None:
    made = plan(None, topics({P0: 7, P1: 3}, first={P0: 2}))
    assert made
    assert (made.number, made.previous_commit_id, made.planned_at) == (1, None, 1234)
    assert made.ranges == {P0: OffsetRange(2, 7), P1: OffsetRange(0, 3)}
    assert made.topic_ids == TOPIC_IDS


def test_next_batch_continues_the_committed_offsets_and_identity() -> None:
    made = plan(committed(2), topics({P0: 25, P1: 20}))
    assert made
    assert (made.number, made.previous_commit_id) == (3, "c2")
    assert made.ranges == {P0: OffsetRange(20, 25), P1: OffsetRange(20, 20)}


def test_each_plan_has_an_identity_of_its_own() -> None:
    one, two = plan(None, topics({P0: 1})), plan(None, topics({P0: 1}))
    assert one
    assert two
    assert one.commit_id != two.commit_id


@pytest.mark.parametrize("state", [None, committed(1)])
def test_nothing_new_is_no_batch(state: CommittedState | None) -> None:
    end = 10 if state else 0
    assert plan(state, topics({P0: end, P1: end})) is None


def test_latest_pins_its_moment_in_an_empty_first_batch_and_only_there() -> None:
    kafka = topics({P0: 10, P1: 10})
    end = lambda new: {tp: kafka.stable[tp] for tp in new}  # noqa: E731
    made = plan(None, kafka, start=end, pin_start=True)
    assert made
    assert made.ranges == {P0: OffsetRange(10, 10), P1: OffsetRange(10, 10)}
    assert plan(committed(1), kafka, start=end, pin_start=True) is None


def test_numbers_never_restart_when_the_intermediate_table_is_new() -> None:
    made = plan(None, topics({P0: 1}), highest=41)
    assert made
    assert (made.number, made.previous_commit_id) == (42, None)


def test_batch_above_the_highest_known_number_is_a_broken_lineage() -> None:
    with pytest.raises(LineageBroken):
        plan(committed(2), topics({P0: 30, P1: 30}), highest=1)


@pytest.mark.parametrize(
    ("sizes", "most", "shares"),
    [
        pytest.param([5, 5], 10, [5, 5], id="fits"),
        pytest.param([100, 100], 10, [5, 5], id="even"),
        pytest.param([900, 100], 10, [9, 1], id="in proportion"),
        pytest.param([1_000_000, 1], 10, [9, 1], id="a quiet partition is not starved"),
        pytest.param([1000, 1, 1, 1, 1, 1], 6, [1, 1, 1, 1, 1, 1], id="one each, however busy another is"),
        pytest.param([1000, 1, 1, 1, 1, 1], 7, [2, 1, 1, 1, 1, 1], id="the rest to the busy one"),
        pytest.param([3, 9, 5], 2, [0, 1, 1], id="more partitions than records: the largest"),
        pytest.param([0, 8, 0], 3, [0, 3, 0], id="nothing for the empty"),
        pytest.param([7, 7, 7], 1, [1, 0, 0], id="one record"),
    ],
)
def test_bound_shares_a_batch_out(sizes: list[int], most: int, shares: list[int]) -> None:
    backlog = {TopicPartition("t", n): OffsetRange(100, 100 + size) for n, size in enumerate(sizes)}
    assert [len(r) for r in bound(backlog, most).values()] == shares
    assert all(r.start == 100 for r in bound(backlog, most).values())


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30), st.integers(1, 5000))
def test_bound_fills_the_batch_exactly_and_leaves_nobody_out(sizes: list[int], most: int) -> None:
    backlog = {TopicPartition("t", n): OffsetRange(7, 7 + size) for n, size in enumerate(sizes)}
    cut = bound(backlog, most)
    assert sum(map(len, cut.values())) == min(most, sum(sizes))
    assert all(len(cut[tp]) <= len(r) for tp, r in backlog.items())
    waiting = [tp for tp, r in backlog.items() if len(r)]
    if len(waiting) <= most:
        assert all(len(cut[tp]) for tp in waiting)


def test_offsets_gone_names_topic_partition_wanted_and_available() -> None:
    with pytest.raises(OffsetsGone) as caught:
        plan(committed(1), topics({P0: 90, P1: 90}, first={P1: 50}))
    problem = caught.value
    assert problem.facts == {"topic": "t", "partition": 1, "wanted": 10, "first": 50, "end": 90}
    for part in ("t-1: ", "10", "50 to 90", "offsets set p t-1=50"):
        assert part in str(problem)


def test_one_command_skips_what_is_lost_and_nothing_is_read_again() -> None:
    with pytest.raises(OffsetsGone) as caught:
        plan(committed(1), topics({P0: 90, P1: 90, P2: 4}, first={P1: 50, P2: 3}))
    assert caught.value.remedy == "skip what is lost: `batchmerge offsets set p t-1=50 t-2=3`"
    with pytest.raises(OffsetsGone) as caught:
        plan(committed(1), topics({P0: 90, P1: 90, U0: 4}, first={P0: 40, P1: 50}))
    assert caught.value.remedy == (
        "skip what is lost: `batchmerge offsets set p t-0=40 t-1=50`, "
        "or all of t with `batchmerge offsets reset p --topic t --to earliest`"
    )


def test_explicit_start_below_what_is_there_is_refused_with_another_remedy() -> None:
    with pytest.raises(OffsetsGone, match="earliest"):
        plan(None, topics({P0: 90}, first={P0: 5}), start=lambda new: dict.fromkeys(new, 0))


def test_end_below_the_committed_offset_means_another_topic() -> None:
    with pytest.raises(TopicRecreated, match="ends at 3") as caught:
        plan(committed(1), topics({P0: 3, P1: 10}))
    assert caught.value.facts["wanted"] == 10


def test_start_beyond_the_end_is_refused() -> None:
    with pytest.raises(TopicRecreated, match="offset 99 is wanted, but the topic ends at 3"):
        plan(None, topics({P0: 3}), start=lambda new: dict.fromkeys(new, 99))


def test_recreated_topic_is_known_by_its_id() -> None:
    with pytest.raises(TopicRecreated, match="another-id"):
        plan(committed(1), topics({P0: 90, P1: 90}, ids={"t": "another-id"}))


def test_partition_that_is_gone_is_refused() -> None:
    with pytest.raises(TopicRecreated, match="t-1"):
        plan(committed(1), topics({P0: 90}))


def test_grown_partitions_are_read_from_their_first_record() -> None:
    made = plan(committed(1), topics({P0: 10, P1: 10, P2: 4}), start=lambda new: dict.fromkeys(new, 3))
    assert made
    assert made.ranges[P2] == OffsetRange(0, 4)


def test_grown_partition_that_retention_has_cut_is_no_silent_jump() -> None:
    with pytest.raises(OffsetsGone, match="offset 0 is wanted, but Kafka has only 1 to 4") as caught:
        plan(committed(1), topics({P0: 10, P1: 10, P2: 4}, first={P2: 1}))
    assert "offsets set p t-2=1" in caught.value.remedy


def test_grown_partitions_are_refused_where_a_key_must_stay() -> None:
    with pytest.raises(SourceError, match="t-2") as caught:
        plan(committed(1), topics({P0: 10, P1: 10, P2: 4}), key_must_stay=True)
    assert "changes.order_by" in caught.value.remedy
    assert caught.value.facts["partitions"] == ["t-2"]


def test_new_topic_is_no_growth() -> None:
    kafka = topics({P0: 10, P1: 10, U0: 4}, ids={**TOPIC_IDS, "u": "id-of-u"})
    made = plan(committed(1), kafka, key_must_stay=True)
    assert made
    assert made.ranges[U0] == OffsetRange(0, 4)
    assert made.topic_ids["u"] == "id-of-u"


def test_topic_that_comes_back_is_known_by_its_id() -> None:
    """It was forgotten: the committed state has its id, and none of its offsets."""
    forgotten = replace(committed(1), topic_ids={**TOPIC_IDS, "u": "old"})
    without = plan(forgotten, topics({P0: 90, P1: 90}))
    assert without
    assert without.topic_ids == {**TOPIC_IDS, "u": "old"}
    with pytest.raises(TopicRecreated, match="its id is new, the committed one is old"):
        plan(forgotten, topics({P0: 90, P1: 90, U0: 4}, ids={**TOPIC_IDS, "u": "new"}))
    again = plan(forgotten, topics({P0: 90, P1: 90, U0: 4}, first={U0: 1}, ids={**TOPIC_IDS, "u": "old"}))
    assert again
    assert again.ranges[U0] == OffsetRange(1, 4)


@pytest.mark.parametrize(
    ("kafka", "as_new"),
    [
        (topics({P0: 10, P1: 10}), True),
        (topics({P0: 10, P1: 9}), False),
        (topics({P0: 10}), False),
        (topics({P0: 90, P1: 90}, ids={"t": "before it was recreated"}), False),
        (topics({P0: 10, P1: 10, U0: 0}, ids={**TOPIC_IDS, "u": "new"}), True),
    ],
)
def test_look_at_kafka_from_before_another_run_has_landed(kafka: TopicState, as_new: bool) -> None:
    state = replace(committed(1), offsets={P0: 10, P1: 10})
    assert kafka.is_as_new_as(state) == as_new
    unread = replace(state, offsets={**state.offsets, P2: 0})
    assert not kafka.is_as_new_as(unread), "another run has found a partition that has no record yet"


# ---- a log that was cut off -----------------------------------------------------------------------------------------


def test_only_what_another_leader_has_is_asked_about() -> None:
    state = replace(committed(2), leader_epochs={P0: 4, P1: 4})
    kafka = topics({P0: 25, P1: 25, P2: 3})
    assert partitions_with_new_leader(state, replace(kafka, leader_epochs={P0: 4, P1: 5, P2: 9})) == {P1: (20, 4)}
    assert partitions_with_new_leader(state, kafka) == {}, "brokers that say no epoch"
    assert partitions_with_new_leader(committed(2), replace(kafka, leader_epochs={P0: 5})) == {}, (
        "a state of before epochs were stored"
    )
    shorter = replace(topics({P0: 15, P1: 25}), leader_epochs={P0: 5, P1: 4})
    assert partitions_with_new_leader(state, shorter) == {}, "the plan refuses it by the offsets"
    made = plan(state, replace(kafka, leader_epochs={P0: 5, P1: 5, P2: 0, U0: 3}))
    assert made is not None
    assert made.leader_epochs == {P0: 5, P1: 5, P2: 0}


def test_log_that_was_cut_off_is_refused_with_the_way_on() -> None:
    refuse_cut_off(committed(2), {})
    with pytest.raises(OffsetsGone, match=r"offset 20 is committed.*cut the log off at offset 12") as caught:
        refuse_cut_off(committed(2), {P1: 12})
    assert f"batchmerge offsets set p {P1}=12" in caught.value.remedy


def test_start_at_a_time_goes_no_further_than_the_plans_own_ends() -> None:
    """Kafka was asked for its ends before it was asked for the first record of a time; meanwhile others came."""
    kafka, start = topics({P0: 100, P1: 50}), FromTimestamp(timestamp=datetime(2026, 1, 1))
    found = first_offsets("p", start, [P0, P1], kafka, lambda *_: {P0: 103, P1: 7})
    assert found == {P0: 100, P1: 7}
