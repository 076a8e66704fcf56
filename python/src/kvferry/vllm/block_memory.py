"""Where the memory of an engine's blocks is, where an agent's pages are blocks (register.engine_id).

The engine's tensors are put into the agent's pool, so that peers write into the very memory that the engine computes
in, and read from it. Where that cannot be, what is to go is copied to the block of the same number in the pool, and
what came from there.

The pool is of one run of the agent. When that has ended its memory stays mapped here, and the engine goes on in it;
with the next run's pool all of the cache moves once more. Nobody but this engine has blocks in a pool
(Options.adopts), and an agent that is gone writes no more: that its process has ended the kernel says (a pidfd), and
nothing else is believed.
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
    """See the module. One thread calls it: the engine's, which computes nothing meanwhile."""

    def __init__(self, client: Any, cache: Cache, engine: Engine) -> None:
        """Put a cache into an agent's pool, or say why it is copied. What does not fit is refused."""
        self._client = client
        self._cache = cache
        self._engine = engine
        # Why what goes and comes is copied; empty: it is not.
        self.copy_reason = cache.immovable_reason()
        self.epoch = 0
        self._incarnation = ""
        self._regions: list[Bytes] = []  # of layers: a row for each block of the pool
        self._agent_pidfd = -1  # a pidfd of the agent's process, whose pool it is
        self._unusable_incarnation = ""  # the life of an agent whose pool is of no use
        # Blocks that the pool has beside the engine's, for copies of those that are lent already.
        self.spare_blocks = range(engine.blocks, count_pool_blocks(client.info, cache, engine))
        if not self._move_to_pool():
            raise unsupported_error(
                "the agent", "gone while the engine started", "there", "start it, and the engine again"
            )
        if self.copy_reason:
            log.warning(
                "kvferry: blocks are copied to and from the agent's pool, twice for each request: %s", self.copy_reason
            )
        else:
            log.info(
                "kvferry: the KV cache, %d bytes, is in the agent's pool, and nothing is copied; blocks to spare: %d",
                engine.blocks * cache.block_bytes,
                len(self.spare_blocks),
            )

    @property
    def is_current(self) -> bool:
        """Whether the blocks are in the pool of the session that there is now."""
        return bool(self._client.attached and self._client.epoch == self.epoch)

    def follow_session(self) -> None:
        """Move to the pool of another session, if there is one and the agent before is gone."""
        if not self._client.attached or self._client.epoch == self.epoch:
            return
        if (
            self._client.info.life == self._incarnation
        ):  # Another session with the same agent, which has ended the one before.
            self.epoch = self._client.epoch
        elif self._client.info.life != self._unusable_incarnation and self._agent_ended():
            incarnation = self._client.info.life
            try:
                self._move_to_pool()
            except InvalidError as error:  # It was started anew with another file: the engine goes on without it.
                self._unusable_incarnation = incarnation
                log.warning("kvferry: KV is neither sent nor fetched: %s", error)

    def is_returned(self, epoch: int) -> bool:
        """Say whether nothing touches blocks any more that a call of some session had, and that has ended.

        While the session stands the agent says so. After that its process must be gone, or have begun another session:
        it does not do that before all is over that it was asked for in the one before.
        """
        if self._client.attached and self._client.epoch == epoch:
            return True
        if self._agent_ended():
            return True
        return bool(
            self._client.attached and self._client.epoch > epoch and self._client.info.life == self._incarnation
        )

    def copy_to_pool(self, blocks: Sequence[int], places: Sequence[int]) -> int:
        """Have blocks of the engine's in some of the pool; say how many bytes were copied for that."""
        for layer, region in enumerate(self._regions):
            for block, place in zip(blocks, places, strict=True):
                self._cache.gather_layer(layer, [block], region[place])
        return len(blocks) * self._cache.block_bytes

    def copy_from_pool(self, blocks: Sequence[int]) -> int:
        """Have blocks as they are in the pool, likewise."""
        for layer, region in enumerate(self._regions):
            for block in blocks:
                self._cache.scatter_layer(layer, region[block], 0, [block])
        return len(blocks) * self._cache.block_bytes

    def release(self) -> None:
        """Give the pool up, before the client is closed: another engine may have it then. The KV is lost."""
        if not self.copy_reason:
            self._cache.move_to(None)
        self._regions = []
        if self._agent_pidfd >= 0:
            os.close(self._agent_pidfd)
            self._agent_pidfd = -1

    # ---- within ----

    def _move_to_pool(self) -> bool:
        """Move to the pool of the session that there is, with all that the cache has; False if it is over already."""
        try:
            memory: PoolMemory = self._client.pool_memory()
        except LostError:
            return False
        blocks = count_pool_blocks(self._client.info, self._cache, self._engine)
        if blocks < self.spare_blocks.stop:
            raise unsupported_error(
                "blocks of the agent", f"{blocks}", f"{self.spare_blocks.stop}", "start it with the file that it had"
            )
        process = _open_pidfd(memory.process)
        if self._client.epoch != memory.epoch or not self._client.attached:  # The number may be another's by now.
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
                "kvferry: the agent was started anew; the KV cache moved to its pool in %.2f s",
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
        """Say whether the process has ended whose pool it is."""
        poll = select.poll()
        poll.register(self._agent_pidfd, select.POLLIN)
        return bool(poll.poll(0))


def count_pool_blocks(info: Attached, cache: Cache, engine: Engine) -> int:
    """Say how many blocks of each layer an agent has; refuse one whose pages are not the blocks of an engine."""
    shares, rest = divmod(cache.layer_bytes, info.page_bytes)
    if rest or not shares:
        raise unsupported_error(
            "page of the agent",
            f"{info.page_bytes} bytes",
            f"{cache.layer_bytes} bytes, a block of {engine.block_tokens} tokens in one layer, or a part of one",
            f"mend layout, and set chunk_size to {engine.block_tokens}, in the agent's file",
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
            "without a number here",
            "one of this PID namespace, or of one below it",
            "share the PID namespace of both containers: only the end of its process says that it writes no more",
        )
    try:
        return os.pidfd_open(process)
    except OSError as error:
        raise unsupported_error(
            "process of the agent", str(error), "one that can be watched", "use Linux 5.3 or newer, and start it anew"
        ) from error


def set_memory(tensor: Any, memory: Bytes) -> None:
    """Have a tensor of torch's be in some memory, which it keeps: all that have this tensor see it there."""
    torch = importlib.import_module("torch")
    with torch.inference_mode(tensor.is_inference()):
        storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        tensor.set_(storage, 0, tensor.size(), tensor.stride())
