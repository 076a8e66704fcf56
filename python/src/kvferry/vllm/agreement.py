"""What two engines must agree on for one to use the KV of the other, said with each request.

Chunks of engines that differ in any of it have other names, or other bytes under one name: so it is compared before
anything is waited for, and what differs is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvferry.vllm.chunk_names import FORM

if TYPE_CHECKING:
    from kvferry.vllm.chunk_names import ChunkNames

# Longer values are another's, and no more of them is said.
_TEXT_MAX = 300


class Agreement:
    """What one engine says of itself, and compares with what another one said."""

    def __init__(self, names: ChunkNames, block_tokens: int, **extra: str | int) -> None:
        """Say it of an engine whose chunks have these names. All ranks of an engine say the same."""
        facts = {**asdict(names), "block_tokens": block_tokens, "form": FORM, **extra}
        del facts["rank"]
        self.facts: dict[str, str | int] = dict(sorted(facts.items()))

    def find_difference(self, remote: Any) -> str:
        """Name each field that differs, with both values; nothing if none does, or another kind of engine speaks."""
        if not isinstance(remote, Mapping) or "form" not in remote:
            return ""
        differences = [
            f"{name} is {_brief(self.facts.get(name))} here and {_brief(remote.get(name))} there"
            for name in sorted({*self.facts, *map(str, remote)})
            if self.facts.get(name) != remote.get(name)
        ]
        return ", ".join(differences[: len(self.facts)])


def _brief(value: Any) -> str:
    return "not said" if value is None else repr(value)[:_TEXT_MAX]
