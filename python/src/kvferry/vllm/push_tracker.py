"""Which chunks of a prompt each step makes whole: the scheduler's side of requests that go layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvferry.vllm.step_work import Part, Push, Work

# A step with a synchronous load, and the one that is scheduled before its outcome is known.
_UNSURE_STEPS = 2


class BlockTable(Protocol):
    """What is used of vLLM's table of blocks."""

    def get_block_ids(self, req_id: str) -> Sequence[Sequence[int]] | None:
        """Give the blocks of a request that is scheduled, by groups."""


class StepOutput(Protocol):
    """What is used of vLLM's SchedulerOutput."""

    @property
    def num_scheduled_tokens(self) -> Mapping[str, int]:
        """Tokens that the step computes, of each request."""

    @property
    def preempted_req_ids(self) -> Collection[str] | None:
        """Requests that lost their blocks."""

    @property
    def has_sync_kv_loads(self) -> bool:
        """Say whether a request of the step computes behind KV that another connector loads in that very step."""

    @property
    def kv_connector_block_state(self) -> BlockTable | None:
        """Blocks of the requests that are scheduled."""


@dataclass
class _TrackedPush:
    push: Push
    # How many of its tokens are computed before the step that is being made.
    computed: Callable[[], int]
    # Workers know of it.
    is_announced: bool = False
    # It has blocks, and was scheduled with them.
    is_scheduled: bool = False
    # What it is computed behind may turn out to be wrong: workers are told of nothing before it ends.
    is_unsure: bool = False
    # Tokens that are computed after the last step, and chunks that workers were told of.
    computed_tokens: int = 0
    announced_chunks: int = 0


class PushTracker:
    """Follows prompts while they are computed, in steps of any length. It changes nothing of vLLM's."""

    def __init__(self, block_tokens: int, chunk_tokens: int) -> None:
        """Follow prompts in such blocks and chunks."""
        self._block_tokens = block_tokens
        self._chunk_tokens = chunk_tokens
        self._tracked: dict[str, _TrackedPush] = {}
        # Steps, from the next one on, whose new requests may be computed behind KV that was not loaded.
        self._unsure_steps = 0

    def track_push(self, push: Push, computed: Callable[[], int]) -> None:
        """Follow a request, if that is new."""
        self._tracked.setdefault(push.local_id, _TrackedPush(push, computed))

    def add_step(self, output: StepOutput, work: Work) -> None:
        """Say what a step does. It is no more than vLLM has decided: its blocks are those of this step.

        Another connector's synchronous load may fail within the step. vLLM learns of it when the step is over, and
        computes the requests anew that were computed behind the blocks in question; with asynchronous scheduling one
        more step was scheduled by then, and its new requests may have found these blocks in the prefix cache.
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
            ):  # It lost some, in whichever way.
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
        """Say of a request whose prompt is computed, and that ends with these blocks, what was not said before."""
        if (tracked := self._tracked.get(name)) is None or not tracked.is_announced:
            return
        prompt_tokens = len(tracked.push.prompt.tokens)
        if tracked.computed() >= prompt_tokens and len(blocks) * self._block_tokens >= prompt_tokens:
            self._add_part(name, tracked, prompt_tokens, blocks, work)

    def end_push(self, name: str) -> Push | None:
        """Forget a request; give it, if workers know of it."""
        tracked = self._tracked.pop(name, None)
        return tracked.push if tracked is not None and tracked.is_announced else None

    def end_all_pushes(self) -> list[tuple[Push, bool]]:
        """Forget all requests; give them, and whether workers know of each."""
        tracked, self._tracked = self._tracked, {}
        return [(each.push, each.is_announced) for each in tracked.values()]

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
        # Blocks go whole: of the last one what it has. All others are of whole chunks.
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
