"""Kills of the real command and of all services at random moments, among all that people do with a pipeline.

After each the next `batchmerge run` is timed, and every table has to equal the model.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import dagster as dg
import psutil
from confluent_kafka.admin import AdminClient

from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli.instance import SETTINGS
from orchestration.names import PROCESS_TAG
from tests.kit.kinds import KINDS
from tests.kit.model import sorted_rows
from tests.kit.project import Project
from tests.kit.records import bootstrap, produce
from tests.kit.topics import make_topic
from tests.kit.waiting import until
from tests.soak.services import Daemon, Services
from tests.soak.traffic import PARTITIONS, Traffic, difference

Table = tuple[str, str]
# Kind and mode: all modes, and a few.
SIX: Sequence[Table] = (
    ("iceberg", "append"),
    ("iceberg", "upsert_delete"),
    ("clickhouse", "append"),
    ("clickhouse", "upsert_delete"),
    ("bigquery", "upsert"),
    ("bigquery", "delete"),
)
THREE: Sequence[Table] = (("iceberg", "upsert_delete"), ("clickhouse", "append"), ("bigquery", "upsert"))
RUN = ("run", "--until-caught-up")
DONE, LATER = 0, 3
_PATIENCE = 900
# Seconds within which the run after a kill should begin, and the share of the runs that should.
_BAR, _SHARE = 10, 0.95
# How likely the run that goes on after a kill is killed too: it works on what is half done, and that becomes more so.
_AGAIN = 0.8


@dataclass(frozen=True)
class GoneOn:
    """How long the run after a kill took.

    Attributes:
        after: what was killed.
        begun: seconds from the command's start to the start of the run's first step; None where none started.
        done: seconds to its end.
    """

    after: str
    begun: float | None
    done: float


class Soak:
    """One pipeline, its records and its tables.

    Attributes:
        due: what has not been killed yet; after that, the dice say what is, and what people do besides.
        usual: seconds that a run takes.
    """

    def __init__(
        self,
        services: Services,
        project: Project,
        elsewhere: Project,
        seed: int,
        tables: Sequence[Table],
        say: Callable[[str], None],
    ) -> None:
        self.services, self.project, self.elsewhere, self._print = services, project, elsewhere, say
        self.tables = [table for table in tables if table[0] in services.kinds]
        self.dice = random.Random(seed)
        self.due = self.dice.sample([act for act, _ in _ACTS], len(_ACTS))
        self.traffic = Traffic(random.Random(seed + 1))
        self.name = self.topic = f"soak_{uuid.uuid4().hex[:8]}"
        self.kills, self.step, self.usual = 0, 0, 0.0
        self.gone_on: list[GoneOn] = []
        self.daemon = Daemon(project)

    # ---- the pipeline

    @property
    def document(self) -> dict[str, object]:
        amount = "int" if self.traffic.narrow else "long"
        columns = {"id": "long", "name": "string", "amount": amount, "op": "string"}
        columns |= {"note": "string"} if self.traffic.noted else {}
        origin = {"metadata_columns": ["topic", "partition", "offset"]}
        return {
            "source": {
                "topics": [self.topic],
                "key": {"format": "json", "columns": {"id": "long"}},
                "value": {"format": "json", "columns": columns},
            },
            "changes": {"key": {"columns": ["id"]}, "op": {"field": "op"}},
            "batch": {"max_records": 150},
            "cron": "* * * * *",
            "trigger": {"records": 1},
            "retry": {"max_retries": 1, "delay_seconds": 1},
            "maintenance": {"enabled": False, "compaction": {"min_input_files": 2}, "snapshots": {"keep_last": 5}},
            "tables": [
                {"kind": kind, "table": self._table(kind, mode), "mode": mode, **origin, **KINDS[kind].options}
                for kind, mode in self.tables
            ],
        }

    def _table(self, kind: str, mode: str) -> str:
        return f"tests.{self.name}_{kind}_{mode}"

    def write(self) -> None:
        for project in (self.project, self.elsewhere):
            project.write(self.name, self.document)

    def begin(self) -> None:
        """The topic, the pipeline file, and a first run."""
        admin = AdminClient({"bootstrap.servers": bootstrap(self.services.connections)})
        make_topic(admin, self.topic, PARTITIONS)
        for project in (self.project, self.elsewhere):
            (project.folder / "dagster").mkdir(parents=True)
            (project.folder / "dagster" / "dagster.yaml").write_text(SETTINGS.read_text())
        self.write()
        self.produce()
        self.run_on("nothing")
        self.usual = 0.7 * self.gone_on.pop().done  # it makes the tables too

    def produce(self) -> None:
        """Produces some records."""
        produce(bootstrap(self.services.connections), self.topic, self.traffic.more(self.dice.randrange(20, 200)))

    # ---- a step

    def play(self) -> None:
        """Kills something; then a run goes on, and what people do meanwhile is done."""
        self.step += 1
        self._edit()
        self.produce()
        self._widen()
        first_round = bool(self.due)
        acts, weights = zip(*_ACTS, strict=True)
        act = self.due.pop() if self.due else self.dice.choices(acts, weights)[0]
        before = self.kills
        killed = act(self)
        if self.kills == before:
            killed += " (ended before)"
            self.due.insert(0, act)
        self._say(killed)
        while not first_round and self.dice.random() < _AGAIN:
            killed = f"{self.kill_run()} that went on"
            self._say(killed)
        self.run_on(killed)
        if not first_round and self.dice.random() < 0.3:
            command = self._command()
            self._say(" ".join(command))
            self._call(self.project, command)
            self.check(" ".join(command))

    def _edit(self) -> None:
        """Once: a new column arrives."""
        if not self.traffic.noted and self.step > 3 and self.dice.random() < 0.2:
            self.traffic.noted = True
            self._say("a new column")
            self.write()

    def _widen(self) -> None:
        """Once: the file takes large amounts from now on. A retry, which is killed and done again, recovers those that
        are dead letters."""
        if not self.traffic.narrow or self.step < 8 or self.dice.random() < 0.6:
            return
        self._say(f"large amounts are allowed, {len(self.traffic.dead)} dead letters are tried again")
        self.run_on("nothing, before the file changes")
        self.traffic.narrow = False
        self.write()
        self._kill_and_repeat(["dead-letters", "retry", self.name])
        self.traffic.dead.clear()
        self.run_on("a retry that recovers")

    def run_on(self, why: str) -> None:
        """The next run; a service that has just come back may need another."""
        for _ in range(4):
            began, wall = time.monotonic(), time.time()
            code, output = self._communicate(self.project.start(*RUN, self.name))
            if code == DONE:
                break
            assert code == LATER, f"the run after {why}: exit {code}\n{output}"
        else:
            raise AssertionError(f"four runs after {why} were of no avail:\n{output}")
        done = time.monotonic() - began
        self.usual = 0.7 * self.usual + 0.3 * done
        self.gone_on.append(GoneOn(why, self._begun(wall), done))
        self.check(why)

    def _begun(self, since: float) -> float | None:
        with dg.DagsterInstance.from_config(str(self.project.folder / "dagster")) as instance:
            run = instance.get_runs(limit=1)[0]
            starts = [log.timestamp for log in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_START)]
        return min(starts) - since if starts and min(starts) >= since else None

    def check(self, why: str) -> None:
        columns = ["id", "name", "amount", *(["note"] if self.traffic.noted else [])]
        for kind, mode in self.tables:
            rows = KINDS[kind].rows(self.services.connections, self._table(kind, mode), columns)
            found = sorted_rows((*(row[column] for column in columns[:3]), row.get("note")) for row in rows)
            wanted = self.traffic.expected(mode)
            assert found == wanted, f"{kind} {mode} after {why}: {difference(found, wanted)}"

    # ---- processes

    def _communicate(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        try:
            output, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise AssertionError(f"{process.args!r} took more than {_PATIENCE} s:\n{output}") from None
        return process.returncode, output

    def _call(self, project: Project, command: Sequence[str], allowed: Sequence[int] = (DONE,)) -> None:
        code, output = self._communicate(project.start(*command))
        assert code in allowed, f"{' '.join(command)}: exit {code}\n{output}"

    def _finish(self, process: subprocess.Popen[str], what: str) -> None:
        """A process that others got in the way of: done, or to be tried again; nothing else."""
        code, output = self._communicate(process)
        assert code in (DONE, LATER), f"{what}: exit {code}\n{output}"

    def _kill_and_repeat(self, command: Sequence[str]) -> None:
        """The command dies in the middle; the next one does what it was to do."""
        self._kill_in_the_middle(command)
        self._call(self.project, command)

    def _kill_in_the_middle(self, command: Sequence[str]) -> None:
        process = self.project.start(*command)
        if self._pass(process, 0.6 * self.usual):
            self._kill(process)
        else:
            self._finish(process, " ".join(command))

    def _pass(self, process: subprocess.Popen[str], most: float | None = None) -> bool:
        """Waits a random time; whether it still runs then."""
        try:
            process.wait(self.dice.uniform(0.2, 1.0) * (most or self.usual))
        except subprocess.TimeoutExpired:
            return True
        return False

    def _kill(self, process: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.kills += 1

    # ---- what is killed

    def kill_run(self) -> str:
        run = self.project.start(*RUN, self.name)
        self.produce()
        if self._pass(run):
            self._kill(run)
        else:
            self._finish(run, "a run")
        return "run"

    def kill_sleeper(self) -> str:
        """It is stopped in the middle; a run of another machine goes past it; then it wakes up."""
        sleeper = self.elsewhere.start(*RUN, self.name)
        if not self._pass(sleeper):
            self._finish(sleeper, "a run")
            return "run that slept"
        os.killpg(sleeper.pid, signal.SIGSTOP)
        self.kills += 1
        try:
            self.produce()
            self.run_on("run that sleeps")
        finally:
            os.killpg(sleeper.pid, signal.SIGCONT)
        self._finish(sleeper, "the run that woke up")
        return "run that slept"

    def kill_one_of_two(self) -> str:
        """Of two machines, which know nothing of each other."""
        runs = [self.elsewhere.start(*RUN, self.name), self.project.start(*RUN, self.name)]
        first, second = self.dice.sample(runs, 2)
        if self._pass(first, 1.5 * self.usual):
            self._kill(first)
        else:
            self._finish(first, "one of two runs")
        self._finish(second, "the other of two runs")
        return "one of two runs"

    def kill_service(self) -> str:
        name = self.dice.choice(self.services.mortal)
        run = self.project.start(*RUN, self.name)
        self._pass(run)
        self.services.kill(name)
        self.kills += 1
        time.sleep(self.dice.uniform(0, 3))
        self.services.restart(name)
        self._finish(run, f"the run while {name} was killed")
        return name

    def kill_command(self) -> str:
        command = self._command()
        self._kill_in_the_middle(command)
        return " ".join(part for part in command if part != self.name)

    def kill_reset(self) -> str:
        """Offsets go past what has just arrived; the tables are without it until a replay from Kafka brings it."""
        self.run_on("nothing, before a reset")
        first = self.traffic.sent()
        with self.traffic.skipped():
            self.produce()
            self._kill_and_repeat(["offsets", "reset", self.name, "--to", "latest", "--yes"])
            self.run_on("a reset")
        skipped = [f"--kafka-offsets={self.topic}-{partition}={offset}" for partition, offset in enumerate(first)]
        self._kill_and_repeat(["replay", self.name, *skipped])
        self.check("a replay of what a reset skipped")
        return "reset, and replay"

    def kill_daemon(self) -> str:
        """The daemon and its code server, or a run that it has started, or both."""
        self.daemon.start()
        try:
            run = self._run_of_daemon()
            self.produce()
            time.sleep(self.dice.uniform(0, 1) * self.usual)
            what = self.dice.choice(["daemon", "run of the daemon", "daemon and its run"])
            if what != "daemon" and (process := self._process(run)):
                process.kill()
            self.kills += 1
            if what == "run of the daemon":
                self.run_on("run of the daemon, which lives")
        finally:
            self.daemon.kill()
        if what == "daemon" and (process := self._process(run)):
            # Nobody else waits for it: the next run does, and says so.
            self._say("the daemon's run goes on without it")
        return what

    def _run_of_daemon(self) -> dg.DagsterRun:
        found: list[dg.DagsterRun] = []

        def started() -> bool:
            with dg.DagsterInstance.from_config(str(self.project.folder / "dagster")) as instance:
                wanted = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
                found[:] = [run for run in instance.get_runs(wanted) if PROCESS_TAG in run.tags]
            return bool(found)

        until(started, what="run of the daemon")
        return found[0]

    def _process(self, run: dg.DagsterRun) -> psutil.Process | None:
        try:
            return psutil.Process(int(run.tags[PROCESS_TAG].split(" ")[1]))
        except psutil.NoSuchProcess:
            return None

    # ---- what people do besides

    def _command(self) -> list[str]:
        """Any but a run; each leaves every table as it is."""
        kind = self.dice.choice(["maintain", "replay landed", "replay from Kafka", "retry", "reset"])
        if kind == "maintain":
            return ["maintain", self.name]
        if kind == "retry":
            return ["dead-letters", "retry", self.name]
        if kind == "reset":
            return ["offsets", "reset", self.name, "--to", "committed", "--yes"]
        if kind == "replay landed":
            numbers = [batch.number for batch in self._pipeline().intermediate.landed().batches]
            first, last = sorted(self.dice.choices(numbers, k=2))
            return ["replay", self.name, "--batches", f"{first}-{last}"]
        offsets = [f"--kafka-offsets={self.topic}-{partition}={self.dice.randrange(20)}" for partition in range(3)]
        return ["replay", self.name, *offsets]

    def _pipeline(self) -> Pipeline:
        return Pipeline(self.name, PipelineSpec.model_validate(self.document), self.services.connections)

    # ---- figures

    def in_time(self) -> bool:
        """Whether the runs after kills began within the bar."""
        begun = self._begins()
        return sum(seconds < _BAR for seconds in begun) >= _SHARE * len(begun)

    def _begins(self) -> list[float]:
        return [g.begun for g in self.gone_on if g.begun is not None]

    def _say(self, what: str) -> None:
        self._print(f"step {self.step}, {self.kills} kills: {what}")

    def figures(self) -> list[str]:
        """How long the runs after kills took."""
        begun = self._begins()
        groups = [("to begin", begun)]
        groups.append(("to the end", [g.done for g in self.gone_on]))
        lines = [f"{self.kills} kills in {self.step} steps, {len(self.traffic.records):,} records"]
        for what, seconds in groups:
            if seconds:
                lines.append(f"the next run needed {what}: {_spread(seconds)}")
        lines.append(f"{sum(s < _BAR for s in begun)} of {len(begun)} began within {_BAR} s")
        for after in sorted({g.after for g in self.gone_on}):
            ends = [g.begun for g in self.gone_on if g.after == after and g.begun is not None]
            lines.append(f"  after {after}: " + (f"{_spread(ends)}" if ends else "no run began"))
        return lines


def _spread(seconds: Sequence[float]) -> str:
    high = sorted(seconds)[min(len(seconds) - 1, int(0.95 * len(seconds)))]
    return (
        f"min {min(seconds):.1f}, median {statistics.median(seconds):.1f}, p95 {high:.1f}, max {max(seconds):.1f} s "
        f"({len(seconds)})"
    )


_ACTS: list[tuple[Callable[[Soak], str], int]] = [
    (Soak.kill_run, 10),
    (Soak.kill_sleeper, 3),
    (Soak.kill_one_of_two, 3),
    (Soak.kill_service, 6),
    (Soak.kill_command, 4),
    (Soak.kill_reset, 1),
    (Soak.kill_daemon, 1),
]
