"""From produce to visible with `interval: 1s`: seconds until a record's offset is committed in its table.

A second of records at a time, for a minute or as many seconds as are named; median and 99th percentile.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time

from jobs.offsets import TopicPartition
from tests.benchmarks.latency import daemon
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce

SECONDS, WARM_UP, PARTS, RATE = 60, 20, 10, 1_000
_PATIENCE = 300


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    flow = Flow("seconds", ["append"], max_records=1_000_000, name="seconds", overrides={"interval": "1s"})
    with daemon([flow]) as (connections, _, _):
        sent, servers = list[tuple[int, float]](), bootstrap(connections)

        def send() -> None:
            """A tenth of a second's records at a time; offset after them, and when they were sent."""
            number = RATE // PARTS
            for turn in range((WARM_UP + seconds) * PARTS):
                began = time.monotonic()
                rows = [Record(0, n, {"id": n, "name": "n", "amount": 1.0, "op": "c"}) for n in range(number)]
                produce(servers, flow.topic, rows)
                sent.append(((turn + 1) * number, began))
                time.sleep(max(0.0, began + 1 / PARTS - time.monotonic()))

        destination = flow.pipeline(connections).destinations()[0]

        def reached() -> int:
            state = destination.committed()
            return state.offsets.get(TopicPartition(flow.topic, 0), 0) if state else 0

        produce(servers, flow.topic, [])
        sender, seen, took = threading.Thread(target=send), 0, list[float]()
        sender.start()
        last = (WARM_UP + seconds) * RATE
        end = time.monotonic() + _PATIENCE + WARM_UP + seconds
        while seen < last and time.monotonic() < end:
            offset, now = reached(), time.monotonic()
            took += [now - began for after, began in list(sent) if seen < after <= offset and after > WARM_UP * RATE]
            seen = max(seen, offset)
            time.sleep(0.02)
        sender.join()
    cuts = statistics.quantiles(took, n=100)
    print(f"{RATE:,} records a second for {seconds} s, interval 1s: produce to visible, seconds")
    print(f"  p50 {cuts[49]:.2f}   p99 {cuts[98]:.2f}   worst {max(took):.2f}   ({len(took)} samples)")


if __name__ == "__main__":
    main()
