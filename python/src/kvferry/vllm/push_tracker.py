"""Tracks which chunks of a prompt each step completes: the scheduler's side of layer-by-layer pushes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvferry.vllm.step_work import Part, Push, Work

# A step with a synchronous load, and the step that is scheduled before its result is known.
_UNSURE_STEPS = 2


class BlockTable(Protocol):
    """The methods of vLLM's block table that are used."""

    def get_block_ids(self, req_id: str) -> Sequence[Sequence[int]] | None:
        """Return the blocks of a scheduled request, by groups."""


class StepOutput(Protocol):
    """The members of vLLM's SchedulerOutput that are used."""

    @property
    def num_scheduled_tokens(self) -> Mapping[str, int]:
        """The number of tokens that the step computes for each request."""

    @property
    def preempted_req_ids(self) -> Collection[str] | None:
        """The requests that lost their blocks."""

    @property
    def has_sync_kv_loads(self) -> bool:
        """Whether a request of the step depends on KV that another connector loads in the same step."""

    @property
    def kv_connector_block_state(self) -> BlockTable | None:
        """The blocks of the scheduled requests."""


@dataclass
class _TrackedPush:
    push: Push
    # Returns the number of its tokens that are computed before the current step.
    computed: Callable[[], int]
    # Whether workers know the push.
    is_announced: bool = False
    # Whether it has blocks and was scheduled with them.
    is_scheduled: bool = False
    # Whether it depends on KV that may turn out to be wrong: workers learn of no part before the request ends.
    is_unsure: bool = False
    # Tokens that are computed after the last step, and chunks that workers know.
    computed_tokens: int = 0
    announced_chunks: int = 0


class PushTracker:
    """Tracks prompts while they are computed, in steps of any length. It changes nothing in vLLM."""

    def __init__(self, block_tokens: int, chunk_tokens: int) -> None:
        """Track prompts in blocks and chunks of so many tokens."""
        self._block_tokens = block_tokens
        self._chunk_tokens = chunk_tokens
        self._tracked: dict[str, _TrackedPush] = {}
        # The number of following steps whose new requests may depend on KV that failed to load.
        self._unsure_steps = 0

    def track_push(self, push: Push, computed: Callable[[], int]) -> None:
        """Track a request, unless it is tracked already."""
        self._tracked.setdefault(push.local_id, _TrackedPush(push, computed))

    def add_step(self, output: StepOutput, work: Work) -> None:
        """Add the pushes and parts of a step to its work. The blocks are those of this step.

        Another connector's synchronous load may fail within the step. vLLM learns of it after the step, and recomputes
        the requests that depend on the affected blocks. With asynchronous scheduling, one more step was scheduled by
        then, and its new requests may have found these blocks in the prefix cache.
        """
        if output.has_sync_kv_loads:
            self._unsure_steps = _UNSURE_STEPS
        for name in output.preempted_req_ids or ():
            if (tracked := self._tracked.get(name)) is not None:
                tracked.is_scheduled = False
                self._restart_push(name, tracked, work)
        for name, new_tokens in output.num_scheduled_tokens.items():
            tracked = self._tracked.get(name)
            if tracked is None or not new_tokens:
                continue
            computed = tracked.computed()
            if computed < min(
                tracked.computed_tokens, len(tracked.push.prompt.tokens)
            ):  # It lost some tokens, for any reason.
                self._restart_push(name, tracked, work)
            if not tracked.is_announced:
                tracked.is_announced = True
                work.pushes.append(tracked.push)
            if not tracked.is_scheduled:
                tracked.is_scheduled, tracked.is_unsure = True, tracked.is_unsure or self._unsure_steps > 0
            if output.kv_connector_block_state is not None and not tracked.is_unsure:
                blocks = output.kv_connector_block_state.get_block_ids(name)
                self._add_part(name, tracked, computed + new_tokens, blocks[0] if blocks else (), work)
        self._unsure_steps = max(0, self._unsure_steps - 1)

    def add_last_part(self, name: str, blocks: Sequence[int], work: Work) -> None:
        """Add the remaining part of a computed request that ends with these blocks."""
        if (tracked := self._tracked.get(name)) is None or not tracked.is_announced:
            return
        prompt_tokens = len(tracked.push.prompt.tokens)
        if tracked.computed() >= prompt_tokens and len(blocks) * self._block_tokens >= prompt_tokens:
            self._add_part(name, tracked, prompt_tokens, blocks, work)

    def end_push(self, name: str) -> Push | None:
        """Stop tracking a request; return its push if workers know it."""
        tracked = self._tracked.pop(name, None)
        return tracked.push if tracked is not None and tracked.is_announced else None

    def end_all_pushes(self) -> list[tuple[Push, bool]]:
        """Stop tracking all requests; return their pushes, and whether workers know them."""
        tracked, self._tracked = self._tracked, {}
        return [(entry.push, entry.is_announced) for entry in tracked.values()]

    def _restart_push(self, name: str, tracked: _TrackedPush, work: Work) -> None:
        if tracked.computed_tokens:
            work.preempts.append(name)
        tracked.computed_tokens = tracked.announced_chunks = 0

    def _add_part(self, name: str, tracked: _TrackedPush, token_end: int, blocks: Sequence[int], work: Work) -> None:
        prompt_tokens = len(tracked.push.prompt.tokens)
        if tracked.computed_tokens >= prompt_tokens:
            return
        tracked.computed_tokens = min(token_end, prompt_tokens)
        last, size = tracked.computed_tokens == prompt_tokens, self._block_tokens
        # Blocks are sent whole, including a partial last block. All other parts consist of whole chunks.
        end = (
            -(-prompt_tokens // size)
            if last
            else tracked.computed_tokens // self._chunk_tokens * self._chunk_tokens // size
        )
        first, begin = tracked.announced_chunks, tracked.announced_chunks * self._chunk_tokens // size
        if begin == end and not last:
            return
        tracked.announced_chunks = end * size // self._chunk_tokens
        work.parts.append(Part(name, first, tuple(blocks[begin:end]), end * size, last))
