"""A landing reads its next batch while the one before it is published; nothing of it counts before that is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from jobs import protocol
from jobs.batch import CommittedState, LandedBatch
from jobs.landing import read_ahead
from jobs.landing.publish import ReadBatch, publish_read
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from resources.connections import Connections
from resources.errors import CommitFailed, Unavailable
from tests.kit import model
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.interrupting import at_failpoints
from tests.kit.records import put
from tests.kit.waiting import PATIENCE, until


class Points:
    """The boundaries that threads have reached, in their order."""

    def __init__(self) -> None:
        self.reached, self._more = list[str](), threading.Condition()

    def add(self, name: str) -> None:
        with self._more:
            self.reached.append(name)
            self._more.notify_all()

    def wait_for(self, there: Callable[[], bool]) -> None:
        with self._more:
            assert self._more.wait_for(there, PATIENCE)


RECORDS = [put(key) for key in range(6)]
Before = Callable[[ReadBatch], None]


@pytest.fixture
def engine(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Engine:
    """Six records, two a batch."""
    made = Engine(Flow(topic(), ["append"], max_records=2), connections, spark)
    made.produce(*RECORDS)
    return made


@pytest.fixture
def before_publication(monkeypatch: pytest.MonkeyPatch) -> Callable[[Before], None]:
    """Has something done before each publication of a landing."""

    def do(act: Before) -> None:
        def publish(read: ReadBatch, summary: dict[str, str]) -> LandedBatch:
            act(read)
            return publish_read(read, summary)

        monkeypatch.setattr(protocol, "publish_read", publish)

    return do


@pytest.mark.parametrize("point", ["land.begun", "land.written"])
def test_the_next_batch_is_read_before_a_batch_is_published(
    engine: Engine, point: str, before_publication: Callable[[Before], None]
) -> None:
    points = Points()

    def wait_for_the_next(read: ReadBatch) -> None:
        points.wait_for(lambda: points.reached.count(point) >= min(3, read.landed.number + 1))

    before_publication(wait_for_the_next)
    with at_failpoints(points.add):
        landed = list(protocol.land(engine.pipeline, 0))
    assert [(batch.number, batch.counts.landed) for batch in landed] == [(1, 2), (2, 2), (3, 2)]
    assert points.reached.count("land.begun") == points.reached.count("land.published") == 3
    engine.merge_all()
    assert engine.read("append") == model.expected(RECORDS, "append")


def test_what_is_read_ahead_is_left_where_the_landing_ends(engine: Engine) -> None:
    begun, published = list[str](), threading.Event()

    def act(name: str) -> None:
        if name == "land.published":
            published.set()
        if name == "land.begun":
            begun.append(name)
            assert len(begun) == 1 or published.wait(PATIENCE)

    with at_failpoints(act):
        assert next(protocol.land(engine.pipeline, 0)).number == 1
    assert [batch.number for batch in engine.pipeline.intermediate.landed().batches] == [1]
    assert [batch.number for batch in protocol.land(engine.pipeline, 0)] == [2, 3]
    engine.merge_all()
    assert engine.read("append") == model.expected(RECORDS, "append")


def test_a_batch_is_landed_although_the_next_one_cannot_be_planned(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = Pipeline.topic_state, list[str]()

    def topic_state(self: Pipeline, committed: CommittedState | None = None) -> TopicState:
        asked.append(self.name)
        if len(asked) > 1:
            raise Unavailable("no broker answers", where="kafka")
        return plain(self, committed)

    monkeypatch.setattr(Pipeline, "topic_state", topic_state)
    landing = protocol.land(engine.pipeline, 0)
    assert next(landing).number == 1
    with pytest.raises(Unavailable, match="no broker answers"):
        next(landing)
    monkeypatch.undo()
    assert [batch.number for batch in protocol.land(engine.pipeline, 0)] == [2, 3]


def test_what_is_read_ahead_is_not_landed_if_another_run_lands_the_batch_before_it(
    engine: Engine, before_publication: Callable[[Before], None]
) -> None:
    others = list[LandedBatch]()

    def land_first(read: ReadBatch) -> None:
        if not others:
            others.append(read.landed)
            others.extend(protocol.land(engine.pipeline, 1))

    before_publication(land_first)
    with pytest.raises(CommitFailed, match="committed state has changed"):
        next(protocol.land(engine.pipeline, 0))
    assert [batch.number for batch in protocol.land(engine.pipeline, 0)] == [2, 3]
    engine.merge_all()
    assert engine.read("append") == model.expected(RECORDS, "append")


def test_a_landing_ends_with_its_own_error_although_spark_does_not_answer(
    engine: Engine, before_publication: Callable[[Before], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read ahead cannot be stopped then."""
    begun, over, stopped = list[str](), threading.Event(), list[str]()

    def hang(_: SparkSession, tag: str) -> None:
        over.wait(PATIENCE)
        stopped.append(tag)

    def act(name: str) -> None:
        if name == "land.begun":
            begun.append(name)
            assert len(begun) == 1 or over.wait(PATIENCE)

    def refuse(read: ReadBatch) -> None:
        raise Unavailable("the catalog does not answer", where=read.append.identifier)

    before_publication(refuse)
    monkeypatch.setattr(read_ahead, "_PATIENCE", 0.1)
    monkeypatch.setattr(type(engine.spark), "interruptTag", hang)
    with at_failpoints(act), pytest.raises(Unavailable, match="the catalog"):
        next(protocol.land(engine.pipeline, 0))
    assert not stopped
    over.set()


def test_a_landing_that_lost_stops_only_what_it_has_read_ahead(
    engine: Engine, before_publication: Callable[[Before], None], tmp_path: Path
) -> None:
    """The run that was faster works in the same session."""
    begun, over = list[str](), threading.Event()

    def act(name: str) -> None:
        if name == "land.begun":
            begun.append(name)
            assert len(begun) == 1 or over.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        others = list[Future[list[Row]]]()

        def lose(read: ReadBatch) -> None:
            others.append(
                pool.submit(engine.spark.range(0, 1, 1, 1).mapInArrow(_until_over(tmp_path), "id long").collect)
            )
            until((tmp_path / "begun").exists, what="the other run's task")
            raise CommitFailed("another run was faster", where=read.append.identifier)

        before_publication(lose)
        with at_failpoints(act), pytest.raises(CommitFailed, match="faster"):
            next(protocol.land(engine.pipeline, 0))
        over.set()
        (tmp_path / "over").touch()
        assert len(others[0].result()) == 1


def _until_over(folder: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (folder / "begun").touch()
        while not (folder / "over").exists():
            time.sleep(0.05)
        yield from batches

    return work


def test_nothing_is_read_ahead_of_a_batch_that_brings_columns(
    engine: Engine, before_publication: Callable[[Before], None]
) -> None:
    """Its next one would be read without them."""
    engine.produce(put(6, extra=1), put(7, extra=2), put(8, extra=3))
    adding = engine.with_value(unknown_fields="add")
    brings = dict[int, bool]()
    before_publication(lambda read: brings.update({read.landed.number: read.changes_reading}))
    points = list[str]()
    with at_failpoints(points.append):
        landed = list(protocol.land(adding.pipeline, 0))
    assert [batch.new_columns for batch in landed] == [{}, {}, {}, {"extra": "long"}, {}]
    assert brings == {1: False, 2: False, 3: False, 4: True, 5: False}
    # The fourth batch is read twice, and published before the fifth is read.
    fourth = [place for place, point in enumerate(points) if point == "land.published"][3]
    assert points[:fourth].count("land.begun") == 5
    assert sum(batch.counts.landed for batch in landed) == 9


def test_the_columns_of_a_batch_come_once_the_batch_before_it_is_published(
    engine: Engine, before_publication: Callable[[Before], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of that one have the columns from before."""
    engine.produce(put(6, extra=1), put(7, extra=2))
    adding = engine.with_value(unknown_fields="add")
    points = Points()

    def let_the_columns_come(read: ReadBatch) -> None:
        if read.landed.number == 3:
            points.wait_for(lambda: bool({"waits", "land.evolved"} & {*points.reached}))

    before_publication(let_the_columns_come)
    monkeypatch.setattr(read_ahead, "raise_if_to_end", lambda: points.add("waits"))
    with at_failpoints(points.add):
        landed = list(protocol.land(adding.pipeline, 0))
    assert [batch.new_columns for batch in landed] == [{}, {}, {}, {"extra": "long"}]
