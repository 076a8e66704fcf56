"""Which chunks of a prompt each step makes whole: the scheduler's side of requests that go layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvferry.vllm.words import Part, Push, Work

# A step with a synchronous load, and the one that is scheduled before its outcome is known.
_UNSURE_STEPS = 2


class Table(Protocol):
    """What is used of vLLM's table of blocks."""

    def get_block_ids(self, req_id: str) -> Sequence[Sequence[int]] | None:
        """Give the blocks of a request that is scheduled, by groups."""


class Output(Protocol):
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
    def kv_connector_block_state(self) -> Table | None:
        """Blocks of the requests that are scheduled."""


@dataclass
class _Pushed:
    push: Push
    # How many of its tokens are computed before the step that is being made.
    computed: Callable[[], int]
    # Workers know of it.
    begun: bool = False
    # It has blocks, and was scheduled with them.
    scheduled: bool = False
    # What it is computed behind may turn out to be wrong: workers are told of nothing before it ends.
    unsure: bool = False
    # Tokens that are computed after the last step, and chunks that workers were told of.
    tokens: int = 0
    chunks: int = 0


class Pushes:
    """Follows prompts while they are computed, in steps of any length. It changes nothing of vLLM's."""

    def __init__(self, block_tokens: int, chunk_tokens: int) -> None:
        """Follow prompts in such blocks and chunks."""
        self._block_tokens = block_tokens
        self._chunk_tokens = chunk_tokens
        self._pushed: dict[str, _Pushed] = {}
        # Steps, from the next one on, whose new requests may be computed behind KV that was not loaded.
        self._unsure = 0

    def add(self, push: Push, computed: Callable[[], int]) -> None:
        """Follow a request, if that is new."""
        self._pushed.setdefault(push.ours, _Pushed(push, computed))

    def step(self, output: Output, work: Work) -> None:
        """Say what a step does. It is no more than vLLM has decided: its blocks are those of this step.

        Another connector's synchronous load may fail within the step. vLLM learns of it when the step is over, and
        computes the requests anew that were computed behind the blocks in question; with asynchronous scheduling one
        more step was scheduled by then, and its new requests may have found these blocks in the prefix cache.
        """
        if output.has_sync_kv_loads:
            self._unsure = _UNSURE_STEPS
        for name in output.preempted_req_ids or ():
            if (pushed := self._pushed.get(name)) is not None:
                pushed.scheduled = False
                self._anew(name, pushed, work)
        for name, more in output.num_scheduled_tokens.items():
            pushed = self._pushed.get(name)
            if pushed is None or not more:
                continue
            computed = pushed.computed()
            if computed < min(pushed.tokens, len(pushed.push.prompt.tokens)):  # It lost some, in whichever way.
                self._anew(name, pushed, work)
            if not pushed.begun:
                pushed.begun = True
                work.pushes.append(pushed.push)
            if not pushed.scheduled:
                pushed.scheduled, pushed.unsure = True, pushed.unsure or self._unsure > 0
            if output.kv_connector_block_state is not None and not pushed.unsure:
                blocks = output.kv_connector_block_state.get_block_ids(name)
                self._part(name, pushed, computed + more, blocks[0] if blocks else (), work)
        self._unsure = max(0, self._unsure - 1)

    def rest(self, name: str, blocks: Sequence[int], work: Work) -> None:
        """Say of a request whose prompt is computed, and that ends with these blocks, what was not said before."""
        if (pushed := self._pushed.get(name)) is None or not pushed.begun:
            return
        all_ = len(pushed.push.prompt.tokens)
        if pushed.computed() >= all_ and len(blocks) * self._block_tokens >= all_:
            self._part(name, pushed, all_, blocks, work)

    def end(self, name: str) -> Push | None:
        """Forget a request; give it, if workers know of it."""
        pushed = self._pushed.pop(name, None)
        return pushed.push if pushed is not None and pushed.begun else None

    def end_all(self) -> list[tuple[Push, bool]]:
        """Forget all requests; give them, and whether workers know of each."""
        pushed, self._pushed = self._pushed, {}
        return [(each.push, each.begun) for each in pushed.values()]

    def _anew(self, name: str, pushed: _Pushed, work: Work) -> None:
        if pushed.tokens:
            work.preempts.append(name)
        pushed.tokens = pushed.chunks = 0

    def _part(self, name: str, pushed: _Pushed, until: int, blocks: Sequence[int], work: Work) -> None:
        all_ = len(pushed.push.prompt.tokens)
        if pushed.tokens >= all_:
            return
        pushed.tokens = min(until, all_)
        last, size = pushed.tokens == all_, self._block_tokens
        # Blocks go whole: of the last one what it has. All others are of whole chunks.
        end = -(-all_ // size) if last else pushed.tokens // self._chunk_tokens * self._chunk_tokens // size
        first, begin = pushed.chunks, pushed.chunks * self._chunk_tokens // size
        if begin == end and not last:
            return
        pushed.chunks = end * size // self._chunk_tokens
        work.parts.append(Part(name, first, tuple(blocks[begin:end]), end * size, last))
