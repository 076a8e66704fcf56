"""What two engines must agree on for one to use the KV of the other, said with each request.

Chunks of engines that differ in any of it have other names, or other bytes under one name: so it is compared before
anything is waited for, and what differs is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvferry.vllm.keys import FORM

if TYPE_CHECKING:
    from kvferry.vllm.keys import Names

# Longer values are another's, and no more of them is said.
_TEXT_MAX = 300


class Agreement:
    """What one engine says of itself, and compares with what another one said."""

    def __init__(self, names: Names, block_tokens: int, **more: str | int) -> None:
        """Say it of an engine whose chunks have these names. All ranks of an engine say the same."""
        said = {**asdict(names), "block_tokens": block_tokens, "form": FORM, **more}
        del said["rank"]
        self.words: dict[str, str | int] = dict(sorted(said.items()))

    def difference(self, theirs: Any) -> str:
        """Name each field that differs, with both values; nothing if none does, or another kind of engine speaks."""
        if not isinstance(theirs, Mapping) or "form" not in theirs:
            return ""
        found = [
            f"{name} is {_brief(self.words.get(name))} here and {_brief(theirs.get(name))} there"
            for name in sorted({*self.words, *map(str, theirs)})
            if self.words.get(name) != theirs.get(name)
        ]
        return ", ".join(found[: len(self.words)])


def _brief(value: Any) -> str:
    return "not said" if value is None else repr(value)[:_TEXT_MAX]
