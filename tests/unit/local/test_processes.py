import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from resources.local import processes
from resources.local.ports import free_port, is_free
from resources.local.processes import Running
from resources.local.service import Command
from tests.kit.waiting import until

SLEEPER = Command([sys.executable, "-c", "import time; print('started', flush=True); time.sleep(600)"])
# Ignores TERM, and has a child that does as well.
STUBBORN = Command(
    [
        sys.executable,
        "-c",
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n",
    ]
)


# Its main thread ends, another still listens, as long as the file is there: as a killed server does for a while, whose
# threads end one by one.
_EXIT_OF_ONE_THREAD = 60
DYING = (
    "import ctypes, os, socket, sys, threading, time\n"
    "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "def live():\n"
    "    while os.path.exists(sys.argv[2]):\n"
    "        time.sleep(0.01)\n"
    "threading.Thread(target=live).start()\n"
    f"ctypes.CDLL(None).syscall({_EXIT_OF_ONE_THREAD}, 0)\n"
)


def _start(command: Command, folder: Path) -> Running:
    log = folder / "log"
    running = processes.start(command, log, folder)
    while "started" not in log.read_text():
        assert processes.is_alive(running)
    return running


def test_a_started_process_has_its_own_session_and_stops(tmp_path: Path) -> None:
    running = _start(SLEEPER, tmp_path)
    assert processes.is_alive(running)
    assert os.getsid(running.pid) == running.pid
    processes.stop(running)
    assert not processes.is_alive(running)
    assert not psutil.pid_exists(running.pid)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the system call is another one")
def test_a_process_is_alive_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    port, lives = free_port([]), tmp_path / "lives"
    lives.touch()
    command = Command([sys.executable, "-c", DYING, str(port), str(lives)])
    try:
        running = processes.start(command, tmp_path / "log", tmp_path)
        process = psutil.Process(running.pid)
        until(lambda: process.status() == psutil.STATUS_ZOMBIE, tmp_path / "log")
        assert not is_free(port)
        threading.Timer(0.5, lives.unlink, [True]).start()
        assert not processes.is_alive(running)
        assert is_free(port)
    finally:
        lives.unlink(missing_ok=True)


def test_a_process_can_be_ended_where_its_parent_cannot(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        running = _start(SLEEPER, tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    started = psutil.Process(running.pid)
    started.terminate()
    try:
        assert started.wait(60) == -signal.SIGTERM
    finally:
        processes.stop(running, patience=0)


def test_a_process_that_ignores_term_is_killed_with_its_children(tmp_path: Path) -> None:
    running = _start(STUBBORN, tmp_path)
    children = psutil.Process(running.pid).children()
    assert len(children) == 1
    processes.stop(running, patience=0.2)
    assert not processes.is_alive(running)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_a_process_whose_pid_is_given_away_while_it_is_stopped_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psutil finds no file for the process, and one again a moment later: that of another process."""
    # As `down` finds it: no child of this process, so nobody waits for it here.
    elsewhere = (
        "import sys\nfrom pathlib import Path\n"
        "from resources.local import processes\nfrom resources.local.service import Command\n"
        "where = Path(sys.argv[1])\n"
        "command = Command([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(processes.start(command, where / 'log', where).model_dump_json())"
    )
    command = [sys.executable, "-c", elsewhere, str(tmp_path)]
    started = subprocess.run(command, check=True, capture_output=True, text=True)
    running = Running.model_validate_json(started.stdout)
    watched, exists = psutil.Process(running.pid), os.path.exists
    monkeypatch.setattr("os.path.exists", lambda path: str(path) == f"/proc/{running.pid}/stat" or exists(path))
    processes.stop(running)
    monkeypatch.undo()
    assert not watched.is_running() or watched.status() == psutil.STATUS_ZOMBIE


def test_a_recycled_pid_is_neither_alive_nor_stopped(tmp_path: Path) -> None:
    somebody_else = _start(SLEEPER, tmp_path)
    ours_once = Running(pid=somebody_else.pid, mark="the mark of a process that is gone")
    try:
        assert not processes.is_alive(ours_once)
        processes.stop(ours_once)
        assert processes.is_alive(somebody_else)
    finally:
        processes.stop(somebody_else)


def test_a_killed_child_is_not_alive_although_nobody_waited_for_it(tmp_path: Path) -> None:
    running = _start(SLEEPER, tmp_path)
    watched = psutil.Process(running.pid)
    os.kill(running.pid, signal.SIGKILL)
    while watched.is_running() and watched.status() != psutil.STATUS_ZOMBIE:
        pass
    assert not processes.is_alive(running)
    assert not psutil.pid_exists(running.pid)


def test_settings_of_another_spark_do_not_reach_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/elsewhere")
    running = _start(SLEEPER, tmp_path)
    try:
        assert "SPARK_CONF_DIR" not in psutil.Process(running.pid).environ()
    finally:
        processes.stop(running)


def test_last_lines_are_those_of_this_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of the last start\n")
    end = log.stat().st_size
    with log.open("a") as file:
        file.write("one\ntwo\nthree\n")
    assert processes.last_lines(log, end, count=2) == "two\nthree"
    assert processes.last_lines(tmp_path / "none", 0) == ""
