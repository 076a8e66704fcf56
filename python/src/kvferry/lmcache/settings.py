"""What an operator sets, and how a plug-in attaches to its agent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Any

from kvferry import client
from kvferry.errors import invalid_error
from kvferry.messages import Attached


@dataclass(frozen=True)
class Settings:
    """What both plug-ins take. Times are in seconds."""

    # The agent's socket. For the storage plug-in "{rank}" in it is the worker's rank: each has an agent of its own.
    socket: str = ""
    # How long chunks may take to come, or to be looked for, and how long to be stored or sent.
    load_patience: float = 10.0
    save_patience: float = 30.0
    # How long the agent is waited for at start, and how long calls wait for one that is away later.
    start_patience: float = 30.0
    grace: float = 2.0
    # What stands for the content of the model's weights, the same wherever they are. Empty: a digest of their files,
    # in an engine's process; LMCache's server has none.
    weights: str = ""
    # Batches that are loaded, and that are stored or sent, at a time. Others wait, within their patience.
    loads: int = 8
    saves: int = 4


def attach_agent(
    settings: Settings, op: str, name: str, needed: Collection[Collection[str]], rank: int = 0
) -> client.Client:
    """Attach to the agent. One that does not serve all of one of the sides that are needed is refused."""
    agent = client.connect(
        settings.socket.replace("{rank}", str(rank)),
        name=name,
        timeout=settings.start_patience,
        grace=settings.grace,
        default_timeout=settings.save_patience,
    )
    sides = agent.info.sides
    if not any(set(some) <= set(sides) for some in needed):
        agent.close()
        wanted = " or ".join(" and ".join(sorted(some)) for some in needed)
        remedy = "set pd_role, or enable_p2p, in the agent's file"
        raise invalid_error(op, "sides of the agent", ", ".join(sides), wanted, remedy)
    return agent


# Where the storage plug-in's settings are in LMCache's configuration.
SECTION = "extra_config.kvferry"
OP = "start KvferryBackend"


@dataclass(frozen=True)
class Engine:
    """What LMCache says of the engine whose plug-in this is."""

    rank: int
    # Tokens of a chunk, and its bytes at this rank.
    chunk_tokens: int
    chunk_bytes: int

    @classmethod
    def from_config(cls, config: Any, metadata: Any) -> Engine:
        """Read it; refuse what is not supported, by name."""
        for name, why in _UNSUPPORTED.items():
            if getattr(config, name, False):
                raise invalid_error(OP, name, "true", "false", why)
        shapes, types = metadata.get_shapes(config.chunk_size), metadata.get_dtypes()
        if len(shapes) != 1:
            remedy = "use a model whose layers all have one kind of cache"
            raise invalid_error(OP, "groups of layers", str(len(shapes)), "1", remedy)
        size = prod(shapes[0]) * types[0].itemsize
        return cls(rank=metadata.worker_id, chunk_tokens=config.chunk_size, chunk_bytes=size)

    def check_agent(self, info: Attached) -> None:
        """Refuse an agent whose pages are not this engine's chunks."""
        if info.layers > 1:
            remedy = "leave use_layerwise out of the agent's file: LMCache's chunks go whole"
            raise invalid_error(
                OP, "layers of the agent", f"{info.layers}, each in a page of its own", "whole chunks", remedy
            )
        if info.page_bytes != self.chunk_bytes or self.chunk_tokens not in info.shape:
            given = f"{info.page_bytes} bytes, of shape {list(info.shape)}"
            wanted = f"{self.chunk_bytes} bytes, a chunk of {self.chunk_tokens} tokens at a rank"
            raise invalid_error(
                OP, "page of the agent", given, wanted, "mend layout and chunk_size of the agent's file"
            )


_UNSUPPORTED = {
    "enable_pd": "set it to false: with it LMCache's own backend sends, and loads no plug-in",
    "use_layerwise": "set it to false: chunks go whole",
}
