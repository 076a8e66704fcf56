"""What the scheduler's side tells the worker's side with each step."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Span:
    """What stands in place of some tokens of a prompt: a part of an image, or embeddings."""

    begin: int
    end: int
    # What it is: an identifier that vLLM gives it, or a digest.
    content: str


@dataclass(frozen=True)
class Prompt:
    """All that the KV of a prompt depends on."""

    tokens: tuple[int, ...]
    # What the KV of every token depends on beside the tokens before it: the model, an adapter, a salt.
    context: str = ""
    # What the KV of some tokens, and of those behind them, depends on. They may overlap.
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Receiver:
    """Where the ranks of a decode engine receive."""

    host: str
    init_ports: tuple[int, ...]
    alloc_ports: tuple[int, ...]


@dataclass(frozen=True)
class Save:
    """The KV of a request is computed, and is to go to a decode engine."""

    # The request, as this engine calls it, and as both engines do.
    local_id: str
    request: str
    prompt: Prompt
    # Those of the prompt, from its first token on. They do not change before the save is reported.
    blocks: tuple[int, ...]
    receiver: Receiver


@dataclass(frozen=True)
class Push:
    """A request whose KV goes layer by layer begins to be computed."""

    # As of a Save.
    local_id: str
    request: str
    prompt: Prompt
    receiver: Receiver


@dataclass(frozen=True)
class Part:
    """This step makes chunks of a Push whole, or computes its last tokens."""

    local_id: str
    # The first of those chunks, by its place in the prompt, and the blocks from that one on.
    first_chunk: int
    blocks: tuple[int, ...]
    # Tokens that the blocks up to its end have room for: whole chunks of them, but for the last ones of a prompt.
    token_end: int
    is_last: bool


@dataclass(frozen=True)
class CancelledSend:
    """No KV of a request goes to its decode engine, which may wait for it."""

    request: str
    receiver: Receiver
    reason: str = ""
    failed: bool = False  # it was to be sent, and counts as a failed save


@dataclass(frozen=True)
class AbandonedLoad:
    """Nobody will come for what is sent of a request, by the name that both engines know, and why: for its sender."""

    request: str
    reason: str = ""
    # As of a Load.
    producers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    """The KV of a request is to be had."""

    local_id: str
    request: str
    prompt: Prompt
    # Those to be filled, and the place of the first of them in the prompt.
    blocks: tuple[int, ...]
    first_block: int
    # It is of the cache that engines share, and not sent for this request.
    is_shared: bool = False
    # Where the ranks of its prefill engine take registrations, if that lends its own blocks.
    producers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Store:
    """The KV of a prompt is computed, and others may need it: its whole chunks go to the cache."""

    local_id: str
    prompt: Prompt
    # As of a Save.
    blocks: tuple[int, ...]


@dataclass
class Work:
    """All that one step asks for."""

    saves: list[Save] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    # Pushes, by our names: those whose blocks others have from this step on, and that are computed anew; those that
    # ended so; and those whose blocks are kept until they were read, which is reported.
    preempts: list[str] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    cancelled_sends: list[CancelledSend] = field(default_factory=list)
    # Loads that nobody needs any more, by our names. They are reported all the same: their blocks wait for that.
    cancels: list[str] = field(default_factory=list)
    abandons: list[AbandonedLoad] = field(default_factory=list)
