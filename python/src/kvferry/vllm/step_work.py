"""The work that the scheduler's side sends to the worker's side with each step."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Span:
    """An input that replaces some tokens of a prompt: a part of an image, or embeddings."""

    begin: int
    end: int
    # The content: an identifier from vLLM, or a digest.
    content: str


@dataclass(frozen=True)
class Prompt:
    """Everything that the KV of a prompt depends on."""

    tokens: tuple[int, ...]
    # Inputs on which the KV of all tokens depends: the model, an adapter, a salt.
    context: str = ""
    # Inputs on which the KV of some tokens and all later ones depends. They may overlap.
    spans: tuple[Span, ...] = ()
    # The tenant whose chunks these are (kvferry.tenants.tenant_of_salt).
    tenant: str = ""


@dataclass(frozen=True)
class Receiver:
    """Where the ranks of a decode engine receive."""

    host: str
    init_ports: tuple[int, ...]
    alloc_ports: tuple[int, ...]


@dataclass(frozen=True)
class Save:
    """Send the KV of a computed request to a decode engine."""

    # The id of the request in this engine, and the id that both engines know.
    local_id: str
    request: str
    prompt: Prompt
    # The blocks of the prompt, from its first token on. They do not change before the save is reported.
    blocks: tuple[int, ...]
    receiver: Receiver
    # The span of the request, if it is traced (kvferry.traces).
    trace: bytes = b""


@dataclass(frozen=True)
class Push:
    """Start the push of a request that is sent layer by layer."""

    # As in Save.
    local_id: str
    request: str
    prompt: Prompt
    receiver: Receiver
    trace: bytes = b""  # as in Save


@dataclass(frozen=True)
class Part:
    """A part of a Push: this step completes chunks, or computes the last tokens."""

    local_id: str
    # The index of the first chunk in the prompt, and the blocks from this chunk on.
    first_chunk: int
    blocks: tuple[int, ...]
    # The number of tokens of the prompt up to the end of the blocks: whole chunks, except at the end of a prompt.
    token_end: int
    is_last: bool


@dataclass(frozen=True)
class CancelledSend:
    """Do not send the KV of a request. Its decode engine may wait for it and must be notified."""

    request: str
    receiver: Receiver
    reason: str = ""
    tenant: str = ""  # as in Prompt
    failed: bool = False  # whether it counts as a failed save


@dataclass(frozen=True)
class AbandonedLoad:
    """Drop the KV that is sent for a request, by the id that both engines know, and give its sender the reason."""

    request: str
    reason: str = ""
    tenant: str = ""  # as in Prompt
    # As in Load.
    producers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    """Load the KV of a request."""

    local_id: str
    request: str
    prompt: Prompt
    # The blocks to be filled, and the index of the first of them in the prompt.
    blocks: tuple[int, ...]
    first_block: int
    # Whether the KV comes from the shared cache, and was not sent for this request.
    is_shared: bool = False
    # Where the ranks of its prefill engine accept registrations, if that engine lends its blocks.
    producers: tuple[str, ...] = ()
    # As in Save.
    trace: bytes = b""


@dataclass(frozen=True)
class Store:
    """Store the whole chunks of a computed prompt in the shared cache."""

    local_id: str
    prompt: Prompt
    # As in Save.
    blocks: tuple[int, ...]


@dataclass
class Work:
    """The work of one step."""

    saves: list[Save] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    # Pushes, by local id: those that lost their blocks and are recomputed; those that lost their blocks and ended; and
    # those that ended and keep their blocks until the copies are reported.
    preempts: list[str] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    cancelled_sends: list[CancelledSend] = field(default_factory=list)
    # Loads that are not needed any more, by local id. They are still reported, because vLLM keeps their blocks until
    # then.
    cancels: list[str] = field(default_factory=list)
    abandons: list[AbandonedLoad] = field(default_factory=list)
