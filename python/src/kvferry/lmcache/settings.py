"""The settings of the plug-ins, and how a plug-in attaches to its agent."""

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
    """The settings of both plug-ins. Times are in seconds."""

    # The agent's socket. In the storage plug-in's setting "{rank}" is replaced by the worker's rank: each worker has
    # its own agent.
    socket: str = ""
    # How long loading or looking up chunks may take, and how long storing or sending.
    load_patience: float = 10.0
    save_patience: float = 30.0
    # How long to wait for the agent at start, and how long calls wait for an agent that is unreachable later.
    start_patience: float = 30.0
    grace: float = 2.0
    # A text that stands for the model's weights, the same on all hosts. If it is empty, a digest of the files is used
    # in an engine's process, and none in LMCache's server.
    weights: str = ""
    # Batches that are loaded, and that are stored or sent, at the same time. Other batches wait within their timeout.
    loads: int = 8
    saves: int = 4


def attach_agent(
    settings: Settings, op: str, name: str, needed: Collection[Collection[str]], rank: int = 0
) -> client.Client:
    """Attach to the agent, and refuse an agent that serves none of the needed sets of sides."""
    agent = client.connect(
        settings.socket.replace("{rank}", str(rank)),
        name=name,
        timeout=settings.start_patience,
        grace=settings.grace,
        default_timeout=settings.save_patience,
    )
    sides = agent.info.sides
    if not any(set(names) <= set(sides) for names in needed):
        agent.close()
        expected = " or ".join(" and ".join(sorted(names)) for names in needed)
        remedy = "set pd_role, or enable_p2p, in the agent's file"
        raise invalid_error(op, "sides of the agent", ", ".join(sides), expected, remedy)
    return agent


# The section of LMCache's configuration with the storage plug-in's settings.
SECTION = "extra_config.kvferry"
OP = "start KvferryBackend"


@dataclass(frozen=True)
class Engine:
    """What LMCache knows of the engine of this process."""

    rank: int
    # Tokens of a chunk, and its bytes at this rank.
    chunk_tokens: int
    chunk_bytes: int

    @classmethod
    def from_config(cls, config: Any, metadata: Any) -> Engine:
        """Read LMCache's configuration, and refuse settings that are not supported."""
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
        """Refuse an agent whose pages are not chunks of this engine."""
        if info.layers > 1:
            remedy = "remove use_layerwise from the agent's file: LMCache sends whole chunks"
            raise invalid_error(
                OP, "layers of the agent", f"{info.layers}, each in its own page", "whole chunks", remedy
            )
        if info.page_bytes != self.chunk_bytes or self.chunk_tokens not in info.shape:
            actual = f"{info.page_bytes} bytes, of shape {list(info.shape)}"
            expected = f"{self.chunk_bytes} bytes, a chunk of {self.chunk_tokens} tokens at a rank"
            raise invalid_error(
                OP, "page of the agent", actual, expected, "correct layout and chunk_size of the agent's file"
            )


_UNSUPPORTED = {
    "enable_pd": "set it to false: otherwise LMCache uses its own backend and loads no plug-in",
    "use_layerwise": "set it to false: LMCache sends whole chunks",
}
