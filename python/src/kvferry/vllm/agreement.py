"""The facts in which two engines must agree so that one can use the KV of the other; each request carries them.

Chunks of engines that differ in a fact have different names, or different bytes under one name. So the facts are
compared before a load starts, and every difference is logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvferry.vllm.chunk_names import FORM

if TYPE_CHECKING:
    from kvferry.vllm.chunk_names import ChunkNames

# Longer values of the other engine are cut in the log.
_TEXT_MAX = 300


class Agreement:
    """The facts of one engine, for comparison with those of another."""

    def __init__(self, names: ChunkNames, block_tokens: int, **extra: str | int) -> None:
        """Collect the facts of an engine. All ranks of an engine have the same facts.

        Args:
            names: the names of the engine's chunks.
            block_tokens: tokens of a block.
            extra: more facts by name.
        """
        facts = {**asdict(names), "block_tokens": block_tokens, "form": FORM, **extra}
        del facts["rank"]
        self.facts: dict[str, str | int] = dict(sorted(facts.items()))

    def find_difference(self, remote: Any) -> str:
        """Return the fields that differ, with both values; empty if none does, or if the other engine sends no
        facts.
        """
        if not isinstance(remote, Mapping) or "form" not in remote:
            return ""
        differences = [
            f"{name} is {_brief(self.facts.get(name))} here and {_brief(remote.get(name))} there"
            for name in sorted({*self.facts, *map(str, remote)})
            if self.facts.get(name) != remote.get(name)
        ]
        return ", ".join(differences[: len(self.facts)])


def _brief(value: Any) -> str:
    return "unknown" if value is None else repr(value)[:_TEXT_MAX]
