"""What tests have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stub import StubAgent

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@pytest.fixture
def stub(tmp_path: pathlib.Path) -> Iterator[StubAgent]:
    with StubAgent(tmp_path) as agent:
        yield agent
