"""The settings of the connector, and the checks of an engine's configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kvferry.errors import InvalidError, invalid_error
from kvferry.settings_reader import read_settings

OP = "start KvferryConnector"


# The sides that the agent of an engine must serve, by the engine's role: all sides of one of these sets.
REQUIRED_SIDES = {
    "kv_producer": ({"sender"},),
    "kv_consumer": ({"receiver"},),
    "kv_both": ({"sharing"}, {"sender", "receiver"}),
}
# The side of an agent whose pages are the engine's own blocks: it serves every role except sharing.
BLOCKS_SIDE = "blocks"


def unsupported_error(field: str, actual: str, expected: str, remedy: str) -> InvalidError:
    """Create the error of an engine that this connector cannot serve."""
    return invalid_error(OP, field, actual, expected, remedy)


@dataclass(frozen=True)
class Settings:
    """The members of kv_connector_extra_config."""

    # The agent's socket. "{rank}" is replaced by the tensor-parallel rank: each rank has its own agent.
    socket: str = ""
    # How long a request waits for its KV before it is computed, and how long a save may take, in seconds.
    load_patience: float = 30.0
    save_patience: float = 30.0
    # How long to wait for the agent when the engine starts, and when the agent is unreachable later, in seconds.
    start_patience: float = 30.0
    grace: float = 5.0
    # A text that stands for the model's weights, the same at all engines. If it is empty, a digest of their files is
    # used.
    weights: str = ""
    # Whether the agent reads KV only when it is fetched (pd_delay_pull). Then a waiting load is not interrupted.
    delayed: bool = False
    # Requests that load, and that save, at the same time. Others wait within their timeout.
    loads: int = 32
    saves: int = 4

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """Read the settings; refuse unknown settings and wrong values."""
        settings: Settings = read_settings(cls, config, "kv_connector_extra_config", OP)
        return settings

    def socket_for_rank(self, rank: int) -> str:
        """Return the socket of a tensor-parallel rank's agent."""
        return self.socket.replace("{rank}", str(rank))


@dataclass(frozen=True)
class ConnectorDuties:
    """What the connector of an engine does."""

    # Send the KV of requests with a receiver; load the KV of requests for which it was sent.
    saves: bool = False
    loads: bool = False
    # Send KV layer by layer while it is computed.
    layers: bool = False
    # Store computed KV for other engines, and look up theirs.
    shares: bool = False
    # Send and load the engine's own blocks, which the agent registers and lends by number.
    own_blocks: bool = False

    @classmethod
    def for_role(cls, role: str, sides: Collection[str], layers: int) -> ConnectorDuties:
        """Return the duties of a role.

        Args:
            role: vLLM's kv_role.
            sides: the sides of the agent.
            layers: the number of layers that a chunk has in separate pages; 0 for whole chunks.

        Raises:
            InvalidError: the agent does not serve the sides that the role needs.
        """
        is_both = role == "kv_both"
        if BLOCKS_SIDE in sides:
            return cls(saves=is_both or role == "kv_producer", loads=is_both or role == "kv_consumer", own_blocks=True)
        if not any(needed <= set(sides) for needed in REQUIRED_SIDES[role]):
            expected = " or ".join(" and ".join(sorted(needed)) for needed in REQUIRED_SIDES[role])
            raise unsupported_error(
                "sides of the agent", ", ".join(sides), expected, "set pd_role, or enable_p2p, in the agent's file"
            )
        saves = "sender" in sides and (is_both or role == "kv_producer")
        return cls(
            saves=saves,
            layers=saves and layers > 0,
            loads="receiver" in sides and (is_both or role == "kv_consumer"),
            shares="sharing" in sides and is_both,
        )


@dataclass(frozen=True)
class Engine:
    """The properties of an engine that the connector needs, from vLLM's configuration."""

    # The name of its model, for people.
    model: str
    role: str
    # The size of the tensor-parallel group, and the rank in it.
    ranks: int
    rank: int
    # Other forms of parallelism that split a rank's part of a token: each must be 1.
    parallel_sizes: Mapping[str, int]
    # Number of layer groups with their own cache.
    groups: int
    # The class name of the first group's cache specification.
    cache: str
    # Tokens of a block, and its bytes in one layer.
    block_tokens: int
    block_bytes: int
    # Number of blocks in the cache.
    blocks: int
    # recompute or fail.
    load_failure_policy: str
    # Tokens of the longest request.
    max_tokens: int = 0
    # Whether one step may be computed in several batches, one after the other.
    may_split_steps: bool = False

    def check_supported(self) -> None:
        """Refuse a configuration that is not supported."""
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
                "kv_cache_spec", self.cache, "full attention", "use a model in which each layer keeps all tokens"
            )
        for name, count in self.parallel_sizes.items():
            if count != 1:
                raise unsupported_error(name, str(count), "1", "split the model by tensor_parallel_size alone")
