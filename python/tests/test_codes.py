"""Tests that codes and errors agree with the Go sources and docs/errors.md."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from kvferry import Code, Error, ErrorDetails, ExpiredError, InvalidError, MissingError
from kvferry.errors import lost_error, make_error

ROOT = pathlib.Path(__file__).parents[2]


def test_codes_are_those_of_go() -> None:
    script = ROOT / "python" / "tools" / "codes.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_codes_are_those_that_users_read() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    told = re.findall(r"\n### `(.*)`\n\n\*(\d+); ", text)
    assert [(code.word, str(code.value)) for code in Code] == told


def test_a_number_that_is_not_known_is_refused() -> None:
    assert Code.of(13) is Code.NOT_FOUND
    assert Code.of(200) is Code.REFUSED


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (ErrorDetails(), "kvferry: put: mismatch: make the configurations of both ends agree"),
        (
            ErrorDetails(peer="h:7300", stage="hello", field="dtype", ours="half", theirs="bfloat16", remedy="mend it"),
            "kvferry: put: mismatch: h:7300, hello: dtype is half here, bfloat16 there; mend it",
        ),
        (
            ErrorDetails(stage="command", field="count", ours="1 to 4", theirs="0", remedy="mend it"),
            "kvferry: put: mismatch: count is 0, want 1 to 4; mend it",
        ),
        (ErrorDetails(peer="h:1", said="no", remedy="mend it"), 'kvferry: put: mismatch: h:1, it says "no"; mend it'),
        (ErrorDetails(stage="hello", remedy="mend it"), "kvferry: put: mismatch: hello; mend it"),
    ],
)
def test_an_error_says_all_in_one_line(why: ErrorDetails, text: str) -> None:
    error = make_error("put", Code.MISMATCH, why)
    assert type(error) is Error
    assert str(error) == text
    assert (error.peer, error.stage, error.field, error.ours, error.theirs, error.said) == (
        why.peer, why.stage, why.field, why.ours, why.theirs, why.said,
    )  # fmt: skip


def test_errors_are_of_classes_that_programs_tell_apart() -> None:
    for code in (Code.NOT_FOUND, Code.LAPSED):
        assert isinstance(make_error("get", code), MissingError)
    assert isinstance(make_error("get", Code.EXPIRED), ExpiredError)
    assert isinstance(make_error("get", Code.EXPIRED), TimeoutError)
    assert isinstance(make_error("get", Code.TOO_LARGE), InvalidError)
    assert isinstance(make_error("get", Code.INVALID), ValueError)
    assert type(make_error("put", Code.PEER_LOST)) is Error  # It concerns another peer: no handle is void.
    assert lost_error("put").code == Code.PEER_LOST
    assert make_error("put", Code.PEER_LOST).remedy == "retry: a peer that comes back is found again"
