"""Shell blocks of the docs without running them: every command exists, with these options and values.

What needs services is run by `tests/tutorial`; here each command line is read as its own program would read it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click

from orchestration.cli import batchmerge
from resources.local import spark_server
from tests.benchmarks import __main__ as benchmarks
from tests.kit.guides import ROOT

_HEREDOC = re.compile(r"<<'(\w+)'\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*")
# Released together with Dagster, and of no use on this machine.
_NOT_INSTALLED = {"dagster-k8s"}
_TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)


def check_script(text: str) -> None:
    """Raises AssertionError, or what the program itself would say, for a command that is not right."""
    for script in _HEREDOC.finditer(text):
        compile(script[2], "<block>", "exec")
    for command in _commands(_HEREDOC.sub("", text)):
        _check(command)


def _commands(script: str) -> Iterator[list[str]]:
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
        lexer.whitespace_split, lexer.commenters = True, "#"
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("&|;"):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def _check(command: list[str]) -> None:
    program, *arguments = _without_assignments(command)
    match Path(program).name:
        case "batchmerge":
            _parse(batchmerge, arguments)
        case "make":
            unknown = set(_without_assignments(arguments)) - set(_TARGET.findall((ROOT / "Makefile").read_text()))
            assert not unknown, f"make has no target {unknown}"
        case "python" | "pytest":
            _check_python(arguments if program != "pytest" else ["-m", "pytest", *arguments])
        case "spark-submit":
            _check_spark(arguments)
        case "pip":
            _check_pip(arguments)
        case "dg":  # called by tests/orchestration/test_installed.py
            assert arguments[:2] in (["check", "defs"], ["scaffold", "defs"]), arguments
        case "apt-get":
            assert arguments[0] in ("update", "install"), arguments
        case "useradd":  # tests/production/test_kubernetes.py reads its number
            assert arguments[0] == "--uid", arguments
        case "source":
            assert arguments == [".venv/bin/activate"]
        case "export":
            assert all(_ASSIGNMENT.fullmatch(argument) for argument in arguments)
        case other:
            raise AssertionError(f"no check of the program {other}")


def _without_assignments(words: list[str]) -> list[str]:
    return [word for word in words if not _ASSIGNMENT.fullmatch(word)]


def _parse(command: click.Command, arguments: list[str], parent: click.Context | None = None) -> None:
    """Reads the arguments as the program does, without calling anything."""
    context = command.make_context(command.name or "", list(arguments), parent=parent)
    if isinstance(command, click.Group):
        name, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None, name
        _parse(inner, rest, context)


def _check_python(arguments: list[str]) -> None:
    if arguments == ["-"]:
        return
    assert arguments[0] == "-m", arguments
    module, *rest = arguments[1:]
    if module == "pytest":
        paths = [word for word in rest if word.startswith("tests/")]
        assert all((ROOT / path).exists() for path in paths), paths
        return
    path = ROOT / Path(*module.split("."))
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    if module == "tests.benchmarks":
        benchmarks.options(rest)
    else:
        assert [name for name in rest if not (ROOT / name).exists()] == []


def _check_spark(arguments: list[str]) -> None:
    """The packages and settings are those of the local Spark, with which everything is tested."""
    local = Path(spark_server.__file__).read_text() + (ROOT / "resources/local/jars.py").read_text()
    packages = arguments[arguments.index("--packages") + 1].split(",")
    for package in packages:
        _, name, version = package.split(":")
        assert name in local, package
        assert f'"{version}"' in local, package
    settings = [arguments[n + 1].split("=")[0] for n, word in enumerate(arguments) if word == "--conf"]
    assert [name for name in settings if name not in local] == []


def _check_pip(arguments: list[str]) -> None:
    wheel = f"./batchmerge-{version('batchmerge')}-py3-none-any.whl"
    if arguments in (["wheel", "--no-deps", "."], ["install", wheel], ["install", f"{wheel}[local]"]):
        return  # tests/orchestration/test_installed.py does the same
    constraints = (ROOT / "constraints.txt").read_text()
    usual = [["install", "-c", "constraints.txt", wheel], ["install", wheel]]
    (ours,) = (words for words in usual if arguments[: len(words)] == words)
    others = set(arguments[len(ours) :]) - _NOT_INSTALLED
    assert [name for name in others if not re.search(rf"^{name}==", constraints, re.MULTILINE)] == []
