"""Records that arrive while everything is killed, and what each table has to hold after them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.kit import model
from tests.kit.records import Record

PARTITIONS = 3
KEYS = 40
BROKEN = ("{not json", '{"id": "x", "name": 7, "op": "u"}', '"text"')
# No int: such a record is a dead letter until the pipeline file says `long`.
LARGE = 2**40


@dataclass
class Traffic:
    """All records so far.

    Attributes:
        noted: the records have a column that those before it did not have.
        narrow: the pipeline file takes no large amounts.
        dead: places in `records` of what only a retry of dead letters can bring into the tables.
        known: so many records the tables know of, if a reset has skipped the others.
    """

    dice: random.Random
    records: list[Record] = field(default_factory=list)
    noted: bool = False
    narrow: bool = True
    dead: set[int] = field(default_factory=set)
    known: int | None = None

    def more(self, count: int) -> list[Record]:
        """Inserts, updates, deletes, tombstones, key changes, broken and large ones; a key stays in its partition."""
        made: list[Record] = []
        # A bad record that a replay lands for the first time holds back older changes of its key (docs/replay-…).
        bad = [4, 3] if self.known is None else [0, 0]
        while len(made) < count:
            key, dice = self.dice.randrange(KEYS), self.dice
            match dice.choices(["put", "delete", "tombstone", "move", "broken", "large"], [70, 10, 5, 8, *bad])[0]:
                case "put":
                    made.append(self._put(key, dice.choice("uc"), dice.randrange(1000)))
                case "delete":
                    made.append(_record(key, {"id": key, "op": "d"}))
                case "tombstone":
                    made.append(_record(key, None))
                case "move":
                    # As Debezium writes the change of a key.
                    other = dice.randrange(KEYS)
                    made += [_record(key, {"id": key, "op": "d"}), _record(key, None)]
                    made.append(self._put(other, "c", dice.randrange(1000)))
                case "broken":
                    made.append(Record(key % PARTITIONS, key, dice.choice(BROKEN)))
                case "large":
                    made.append(self._put(key, "u", LARGE))
        if self.narrow:
            first = len(self.records)
            self.dead |= {first + n for n, record in enumerate(made) if _is_large(record)}
        self.records += made
        return made

    def sent(self) -> list[int]:
        """How many records each partition has: the offset of its next one."""
        return [sum(record.partition == partition for record in self.records) for partition in range(PARTITIONS)]

    @contextmanager
    def skipped(self) -> Iterator[None]:
        """The tables know nothing of what arrives in here."""
        self.known = len(self.records)
        try:
            yield
        finally:
            self.known = None

    def expected(self, mode: str) -> list[tuple[object, ...]]:
        """Rows (id, name, amount, note) of a table of this mode."""
        readable = [record for n, record in enumerate(self.records[: self.known]) if n not in self.dead]
        return model.expected(readable, mode, ("id", "name", "amount", "note"))

    def _put(self, key: int, op: str, amount: int) -> Record:
        name = f"n{len(self.records)}-{self.dice.randrange(10**6)}"
        value: dict[str, object] = {"id": key, "name": name, "amount": amount, "op": op}
        return _record(key, {**value, "note": f"note {amount}"} if self.noted else value)


def _record(key: int, value: dict[str, object] | None) -> Record:
    return Record(key % PARTITIONS, key, value)


def _is_large(record: Record) -> bool:
    return isinstance(record.value, dict) and record.value.get("amount") == LARGE


def difference(found: Sequence[object], wanted: Sequence[object]) -> str:
    """What is missing and what is too much, some of each."""
    missing, surplus = list(wanted), []
    for row in found:
        if row in missing:
            missing.remove(row)
        else:
            surplus.append(row)
    return f"{len(missing)} missing {missing[:5]}, {len(surplus)} too many {surplus[:5]}"
