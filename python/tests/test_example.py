"""Tests of the error messages of examples/vllm-pd/run.py."""

from __future__ import annotations

import contextlib
import os
import pathlib
import runpy
import subprocess
import sys
from typing import Any

import pytest

RUN = pathlib.Path(__file__).parents[2] / "examples" / "vllm-pd" / "run.py"


def test_a_command_that_is_not_there_is_said(tmp_path: pathlib.Path) -> None:
    package = str(pathlib.Path(__file__).parents[1] / "src")
    env = {**os.environ, "KVFERRY_BIN": str(tmp_path / "nothing"), "PYTHONPATH": package}
    done = subprocess.run(
        [sys.executable, str(RUN), "--work", str(tmp_path)], check=False, capture_output=True, text=True, env=env
    )
    assert done.returncode == 1
    assert done.stderr.startswith("run.py: kvferry: start: not_found: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("certs", [0, 3])
def test_a_command_that_fails_is_said(
    certs: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tmp_path / "kvferry"
    command.write_text(f'#!/bin/sh\n[ "$1" = certs ] && exit {certs}\necho no such node >&2\nexit 3\n')
    command.chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").touch()
    monkeypatch.setenv("KVFERRY_BIN", str(command))
    monkeypatch.setattr(sys, "argv", ["run.py", "--work", str(tmp_path)])
    run = runpy.run_path(str(RUN))

    class Process(contextlib.nullcontext[Any]):
        """An engine that serves."""

        def __init__(self, *_: object) -> None:
            super().__init__(self)

        def serves(self, _: int) -> None:
            pass

    monkeypatch.setitem(run["main"].__globals__, "Process", Process)
    monkeypatch.setitem(run["main"].__globals__, "ask", lambda *_: ([], 0.0))
    assert run["main"]() == 1
    said = capsys.readouterr().err
    if certs:
        assert said == "run.py: kvferry certs ended with status 3; its output is above\n"
        return
    assert said.startswith("run.py: prefill's agent: kvferry: start: ")
    assert "it ended with status 3" in said
    (log,) = tmp_path.glob("run-*/prefill-agent.log")  # Each run has its own folder, so that nothing is overwritten.
    assert said.endswith(f"its log is {log}\n")
    assert log.read_text() == "no such node\n"
