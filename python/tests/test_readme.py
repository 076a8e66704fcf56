"""Tests of README.md: agents accept its files, and its program moves chunks between them."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from nodes import free_ports, needs_binary, run_node

README = pathlib.Path(__file__).parents[1] / "README.md"

pytestmark = needs_binary


def blocks(kind: str) -> list[str]:
    """Return the contents of the fenced blocks of a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_what_the_readme_tries_works(tmp_path: pathlib.Path) -> None:
    init, alloc = free_ports(2)

    def here(text: str) -> str:
        """Replace the ports of the page by free ones."""
        assert "7300" in text
        return text.replace("7300", str(init)).replace("7400", str(alloc))

    (program,) = blocks("python")
    prefill, decode = blocks("yaml")
    with run_node(tmp_path / "p", prefill) as one, run_node(tmp_path / "d", here(decode)) as other:
        for node, name in ((one, "prefill"), (other, "decode")):
            (tmp_path / f"{name}.sock").symlink_to(node.socket)
        environment = {**os.environ, "KVFERRY": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", here(program)],
            check=False,
            capture_output=True,
            text=True,
            env=environment,
        )
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("<kvferry.PutResult: 4 sent, 0 skipped, ")
    assert [line.split()[-1] for line in rest] == ["0", "1", "2", "3"]
