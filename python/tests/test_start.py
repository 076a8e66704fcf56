"""Tests of starting an agent, with broken commands."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

import kvferry.agent
from kvferry import Code, Error
from kvferry.agent import find_binary, start


def command(folder: pathlib.Path, script: str) -> str:
    """Write a script that stands in for the command."""
    path = folder / "kvferry"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_an_agent_says_where_it_serves(tmp_path: pathlib.Path) -> None:
    script = """trap 'exit 7' TERM
echo "$@" >"$(dirname "$0")/said"
echo '{"socket": "/run/a.sock", "init_port": 7300, "alloc_port": 7400, "new": 1}'
while :; do sleep 0.01; done"""
    with start("node.yaml", "a.sock", binary=command(tmp_path, script)) as agent:
        assert (agent.socket, agent.init_port, agent.alloc_port) == ("/run/a.sock", 7300, 7400)
        assert agent.announcement["new"] == 1
        assert (tmp_path / "said").read_text() == "agent --config node.yaml --socket a.sock\n"
    assert agent.process.returncode == 7
    assert agent.stop() == 7


def test_an_agent_that_does_not_end_is_ended(tmp_path: pathlib.Path) -> None:
    script = "trap '' TERM\necho '{}'\nwhile :; do sleep 0.01; done"
    agent = start("node.yaml", "a.sock", binary=command(tmp_path, script))
    assert agent.stop(0.05) == -9
    again = start("node.yaml", "a.sock", binary=command(tmp_path, script))
    again.kill()
    assert again.process.returncode == -9


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("exit 3", Code.FAULTED, "status 3"),
        ("echo serving; exec sleep 60", Code.MALFORMED, "not a JSON object"),
        ("echo '[1]'; exec sleep 60", Code.MALFORMED, "not a JSON object"),
        ("exec sleep 60", Code.EXPIRED, "does not serve"),
        ("exec >&-; exec sleep 60", Code.EXPIRED, "closed its output and still runs"),
        ("head -c 100000 /dev/zero; exec sleep 60", Code.MALFORMED, "no end"),
    ],
)
def test_what_is_no_agent_is_ended(tmp_path: pathlib.Path, script: str, code: Code, says: str) -> None:
    with pytest.raises(Error, match=says) as failed:
        start("node.yaml", "a.sock", binary=command(tmp_path, script), timeout=0.5 if "does not" in says else 30.0)
    assert failed.value.code == code


def test_the_command_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = command(tmp_path, "")
    monkeypatch.delenv("KVFERRY_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kvferry.agent, "__file__", str(tmp_path / "agent.py"))
    assert find_binary() == path
    (tmp_path / "bin").mkdir()
    carried = command(tmp_path / "bin", "")
    assert find_binary() == carried
    monkeypatch.setenv("KVFERRY_BIN", path)
    assert find_binary() == path
    monkeypatch.setenv("KVFERRY_BIN", str(tmp_path / "other"))
    with pytest.raises(Error, match="KVFERRY_BIN") as failed:
        find_binary()
    assert failed.value.code == Code.NOT_FOUND


def test_the_package_is_a_command(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "kvferry"
    shutil.copytree(pathlib.Path(kvferry.__file__).parent, package, ignore=shutil.ignore_patterns("bin", "__pycache__"))
    run = [sys.executable, "-m", "kvferry", "agent", "--config", "a file"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    without = subprocess.run(run, check=False, capture_output=True, text=True, env=env)
    assert without.returncode == 1
    assert "has no command" in without.stderr
    (package / "bin").mkdir()
    command(package / "bin", 'echo "$#:$3"; exit 7')
    done = subprocess.run(run, check=False, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (7, "3:a file\n")
