"""The memory of an engine's blocks if an agent's pages are blocks (register.engine_id).

The engine's tensors are moved into the agent's pool, so that peers write directly into the memory in which the engine
computes, and read from it. If that is impossible, blocks are copied to and from the blocks of the same numbers in the
pool.

A pool belongs to one incarnation of the agent. When the agent exits the memory stays mapped and the engine continues in
it; the cache moves to the pool of the next incarnation. Invariant: only this engine has blocks in its pool
(Options.owns_pool), and a block is reused only when the agent cannot write it any more. Only the kernel's report that
the agent's process has ended (a pidfd) proves that an agent without a session writes no more.
"""

from __future__ import annotations

import importlib
import os
import select
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from kvferry.errors import InvalidError, LostError
from kvferry.vllm.log import log
from kvferry.vllm.settings import unsupported_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvferry.messages import Attached
    from kvferry.values import PoolMemory
    from kvferry.vllm.cache import Cache
    from kvferry.vllm.settings import Engine

    Bytes = npt.NDArray[np.uint8]


class BlockMemory:
    """See the module. Only the engine's thread calls it, and the engine computes nothing meanwhile."""

    def __init__(self, client: Any, cache: Cache, engine: Engine) -> None:
        """Move a cache into an agent's pool, or log why blocks are copied. An agent that does not fit is refused."""
        self._client = client
        self._cache = cache
        self._engine = engine
        # Why blocks are copied; empty if they are not.
        self.copy_reason = cache.immovable_reason()
        self.epoch = 0
        self._incarnation = ""
        self._regions: list[Bytes] = []  # regions of the layers, with a row for each block of the pool
        self._agent_pidfd = -1  # a pidfd of the agent's process that owns the pool
        self._unusable_incarnation = ""  # the incarnation of an agent whose pool does not fit
        # Blocks of the pool beyond the engine's, for copies of blocks that are lent already.
        self.spare_blocks = range(engine.blocks, count_pool_blocks(client.info, cache, engine))
        if not self._move_to_pool():
            raise unsupported_error(
                "the agent", "lost while the engine started", "there", "start the agent, and restart the engine"
            )
        if self.copy_reason:
            log.warning(
                "kvferry: blocks are copied to and from the agent's pool, twice for each request: %s", self.copy_reason
            )
        else:
            log.info(
                "kvferry: the KV cache, %d bytes, is in the agent's pool, and nothing is copied; spare blocks: %d",
                engine.blocks * cache.block_bytes,
                len(self.spare_blocks),
            )

    @property
    def is_current(self) -> bool:
        """Whether the blocks are in the pool of the current session."""
        return bool(self._client.attached and self._client.epoch == self.epoch)

    def follow_session(self) -> None:
        """Move to the pool of a new session, if there is one and the former agent has ended."""
        if not self._client.attached or self._client.epoch == self.epoch:
            return
        if (
            self._client.info.life == self._incarnation
        ):  # A new session with the same agent, which has ended the former session.
            self.epoch = self._client.epoch
        elif self._client.info.life != self._unusable_incarnation and self._agent_ended():
            incarnation = self._client.info.life
            try:
                self._move_to_pool()
            # The agent was restarted with another configuration: the engine continues without it.
            except InvalidError as error:
                self._unusable_incarnation = incarnation
                log.warning("kvferry: KV is neither sent nor fetched: %s", error)

    def is_returned(self, epoch: int) -> bool:
        """Report whether nothing accesses the blocks of a call that ended in some session.

        During that session the agent's reply says so. Afterwards the agent's process must have ended or have started
        another session, which it does only when all accesses of the former session are over.
        """
        if self._client.attached and self._client.epoch == epoch:
            return True
        if self._agent_ended():
            return True
        return bool(
            self._client.attached and self._client.epoch > epoch and self._client.info.life == self._incarnation
        )

    def copy_to_pool(self, blocks: Sequence[int], places: Sequence[int]) -> int:
        """Copy blocks of the engine to blocks of the pool; return the number of copied bytes."""
        for layer, region in enumerate(self._regions):
            for block, place in zip(blocks, places, strict=True):
                self._cache.gather_layer(layer, [block], region[place])
        return len(blocks) * self._cache.block_bytes

    def copy_from_pool(self, blocks: Sequence[int]) -> int:
        """Copy blocks of the pool to the engine's blocks of the same numbers; return the number of copied bytes."""
        for layer, region in enumerate(self._regions):
            for block in blocks:
                self._cache.scatter_layer(layer, region[block], 0, [block])
        return len(blocks) * self._cache.block_bytes

    def release(self) -> None:
        """Release the pool before the client is closed, so that another engine can use it. The KV is lost."""
        if not self.copy_reason:
            self._cache.move_to(None)
        self._regions = []
        if self._agent_pidfd >= 0:
            os.close(self._agent_pidfd)
            self._agent_pidfd = -1

    # ---- internal ----

    def _move_to_pool(self) -> bool:
        """Move the cache with its content to the pool of the current session; return False if the session is over."""
        try:
            memory: PoolMemory = self._client.pool_memory()
        except LostError:
            return False
        blocks = count_pool_blocks(self._client.info, self._cache, self._engine)
        if blocks < self.spare_blocks.stop:
            raise unsupported_error(
                "blocks of the agent",
                f"{blocks}",
                f"{self.spare_blocks.stop}",
                "start it with its former configuration file",
            )
        process = _open_pidfd(memory.process)
        if self._client.epoch != memory.epoch or not self._client.attached:  # The process id may have been reused.
            os.close(process)
            return False
        started = time.monotonic()
        rows = memory.bytes.reshape(self._cache.layer_count, blocks, self._cache.layer_bytes)
        regions = [rows[layer] for layer in range(self._cache.layer_count)]
        if not self.copy_reason:
            self._cache.move_to(regions)
        if self._agent_pidfd >= 0:
            os.close(self._agent_pidfd)
            log.warning(
                "kvferry: the agent was restarted; the KV cache moved to its pool in %.2f s",
                time.monotonic() - started,
            )
        self.epoch, self._incarnation, self._regions, self._agent_pidfd = (
            memory.epoch,
            memory.incarnation,
            regions,
            process,
        )
        return True

    def _agent_ended(self) -> bool:
        """Report whether the process that owns the pool has ended."""
        poll = select.poll()
        poll.register(self._agent_pidfd, select.POLLIN)
        return bool(poll.poll(0))


def count_pool_blocks(info: Attached, cache: Cache, engine: Engine) -> int:
    """Return how many blocks of each layer an agent's pool has; refuse pages that are not the blocks of the engine."""
    shares, rest = divmod(cache.layer_bytes, info.page_bytes)
    if rest or not shares:
        raise unsupported_error(
            "page of the agent",
            f"{info.page_bytes} bytes",
            f"{cache.layer_bytes} bytes, a block of {engine.block_tokens} tokens in one layer, or a part of one",
            f"correct layout, and set chunk_size to {engine.block_tokens}, in the agent's file",
        )
    blocks, rest = divmod(info.pages, cache.layer_count * shares)
    if rest or blocks < engine.blocks:
        raise unsupported_error(
            "pages of the agent",
            f"{info.pages}",
            f"{cache.layer_count * shares * engine.blocks} or more: {engine.blocks} blocks in each of "
            f"{cache.layer_count} layers",
            f"set register.blocks of the agent's file to {engine.blocks} or more, or the engine's "
            "--num-gpu-blocks-override to less than it has there",
        )
    return blocks


def _open_pidfd(process: int) -> int:
    if not process:
        raise unsupported_error(
            "process of the agent",
            "without an id here",
            "a process of this PID namespace, or of a nested one",
            "share the PID namespace of both containers: only the end of its process proves that it writes no more",
        )
    try:
        return os.pidfd_open(process)
    except OSError as error:
        raise unsupported_error(
            "process of the agent",
            str(error),
            "a process that can be watched",
            "use Linux 5.3 or newer, and restart the agent",
        ) from error


def set_memory(tensor: Any, memory: Bytes) -> None:
    """Move a torch tensor into some memory, which it keeps alive. All references to the tensor see the new memory."""
    torch = importlib.import_module("torch")
    with torch.inference_mode(tensor.is_inference()):
        storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        tensor.set_(storage, 0, tensor.size(), tensor.stride())
