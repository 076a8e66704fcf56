"""What an operator sets, and what the connector refuses at start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kvferry.errors import InvalidError, invalid_error
from kvferry.settings_reader import read_settings

OP = "start KvferryConnector"


# What the agent of an engine in that role must serve: all of one of these.
REQUIRED_SIDES = {
    "kv_producer": ({"sender"},),
    "kv_consumer": ({"receiver"},),
    "kv_both": ({"sharing"}, {"sender", "receiver"}),
}
# The side of an agent whose pages are the engine's own blocks: it serves every role but sharing.
BLOCKS_SIDE = "blocks"


def unsupported_error(field: str, actual: str, wanted: str, remedy: str) -> InvalidError:
    """Make the error of an engine that this connector cannot serve."""
    return invalid_error(OP, field, actual, wanted, remedy)


@dataclass(frozen=True)
class Settings:
    """The members of kv_connector_extra_config."""

    # The agent's socket. "{rank}" in it is the tensor-parallel rank: each has an agent of its own.
    socket: str = ""
    # How long a request waits for its KV before it is computed, and how long a save may take, in seconds.
    load_patience: float = 30.0
    save_patience: float = 30.0
    # How long the agent is waited for when the engine starts, and when it is away later, in seconds.
    start_patience: float = 30.0
    grace: float = 5.0
    # What stands for the content of the model's weights, the same at all engines. Empty: a digest of their files.
    weights: str = ""
    # Whether the agent reads KV only when it is fetched (pd_delay_pull). Then a load that waits is not cut short.
    delayed: bool = False
    # Requests that load, and that save, at a time. Others wait their turn, within their patience.
    loads: int = 32
    saves: int = 4

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """Read them. What is unknown or of no use is refused."""
        settings: Settings = read_settings(cls, config, "kv_connector_extra_config", OP)
        return settings

    def socket_for_rank(self, rank: int) -> str:
        """Say where the agent of a tensor-parallel rank is."""
        return self.socket.replace("{rank}", str(rank))


@dataclass(frozen=True)
class ConnectorDuties:
    """What the connector of an engine does."""

    # Send the KV of requests that say where to; fetch that of those that say that it was sent.
    saves: bool = False
    loads: bool = False
    # What is sent goes layer by layer, and is followed while it is computed.
    layers: bool = False
    # Store what is computed where others find it, and look for what others have.
    shares: bool = False
    # What is sent and fetched are the engine's own blocks, which the agent registers and lends by number.
    own_blocks: bool = False

    @classmethod
    def for_role(cls, role: str, sides: Collection[str], layers: int) -> ConnectorDuties:
        """Say what there is to do in a role, with an agent that has these sides, and so many layers of a chunk apart.

        One that is of no use is refused.
        """
        both = role == "kv_both"
        if BLOCKS_SIDE in sides:
            return cls(saves=both or role == "kv_producer", loads=both or role == "kv_consumer", own_blocks=True)
        if not any(needed <= set(sides) for needed in REQUIRED_SIDES[role]):
            wanted = " or ".join(" and ".join(sorted(needed)) for needed in REQUIRED_SIDES[role])
            raise unsupported_error(
                "sides of the agent", ", ".join(sides), wanted, "set pd_role, or enable_p2p, in the agent's file"
            )
        saves = "sender" in sides and (both or role == "kv_producer")
        return cls(
            saves=saves,
            layers=saves and layers > 0,
            loads="receiver" in sides and (both or role == "kv_consumer"),
            shares="sharing" in sides and both,
        )


@dataclass(frozen=True)
class Engine:
    """What the connector has to know of an engine, as vLLM's configuration says it."""

    # What people call its model.
    model: str
    role: str
    # Of the tensor-parallel group: how many, and which one this is.
    ranks: int
    rank: int
    # Other forms of parallelism that split what a rank has of a token: each must be 1.
    parallel_sizes: Mapping[str, int]
    # Groups of layers with a cache of their own.
    groups: int
    # What kind of cache the first group has, by the name of its class.
    cache: str
    # Tokens of a block, and its bytes in one layer.
    block_tokens: int
    block_bytes: int
    # Blocks of the cache.
    blocks: int
    # recompute or fail.
    load_failure_policy: str
    # Tokens of the longest request.
    max_tokens: int = 0
    # Whether one step may be computed in several batches, one after the other.
    may_split_steps: bool = False

    def check_supported(self) -> None:
        """Refuse what is not supported, by name."""
        if self.role not in REQUIRED_SIDES:
            raise unsupported_error("kv_role", self.role, f"one of {', '.join(REQUIRED_SIDES)}", "choose one")
        if self.groups != 1:
            raise unsupported_error(
                "kv_cache_groups",
                str(self.groups),
                "1",
                "use a model whose layers all have one kind of cache: hybrid caches are not supported",
            )
        if self.cache not in ("FullAttentionSpec", "MLAAttentionSpec"):
            raise unsupported_error(
                "kv_cache_spec", self.cache, "full attention", "use a model in which each layer keeps all of its tokens"
            )
        for name, count in self.parallel_sizes.items():
            if count != 1:
                raise unsupported_error(name, str(count), "1", "split the model by tensor_parallel_size alone")
