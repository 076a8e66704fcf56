"""The inputs of a request besides its tokens: salt, adapter, media, and embeddings in place of tokens.

They are the inputs of vLLM's own block hash. An adapter is named by the content of its files, and embeddings by their
bytes: both are digested on threads while the scheduler lets the request wait. A request with an input that cannot be
named is computed, and its KV is neither sent nor stored.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvferry.tenants import tenant_of_salt
from kvferry.vllm.log import log
from kvferry.vllm.step_work import Prompt, Span
from kvferry.vllm.weights import adapter_digest, adapter_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_THREADS = 2


class UnnamableInputError(ValueError):
    """The KV of a request depends on an input that cannot be named."""

    def __init__(self, kind: str, reason: str) -> None:
        """Name the kind of input for people, and the reason."""
        super().__init__(f"{kind}: {reason}")
        self.kind = kind


@dataclass(frozen=True)
class _Adapter:
    """An adapter as it was when a request first named it."""

    path: str
    # The state of its files in the file system; it changes when a file is written.
    files: str
    digest: str


@dataclass(frozen=True)
class _Digests:
    """The digests of a request."""

    adapter: list[str]
    embeddings: tuple[Span, ...]


@dataclass(frozen=True)
class _PendingDigests:
    """Digests in progress."""

    adapter: Any
    embeddings: Any
    deadline: float
    future: Future[_Digests]


class RequestInputs:
    """Names the inputs of an engine's requests. Only the scheduler's thread may call it."""

    def __init__(
        self,
        block_tokens: int,
        timeout: float,
        *,
        adapter_folder: Callable[[str], str] = os.path.abspath,
        adapter_dtype: str = "",
        extra_keys: Callable[[Any], int] | None = None,
    ) -> None:
        """Name the inputs of requests.

        Args:
            block_tokens: tokens of a block.
            timeout: how long digesting may take, in seconds.
            adapter_folder: finds an adapter's files as vLLM does; it may be slow.
            adapter_dtype: the dtype of adapters.
            extra_keys: counts the inputs besides tokens in vLLM's own hash of a request's first token.
        """
        self._block_tokens = block_tokens
        self._patience = timeout
        self._adapter_folder = adapter_folder
        self._adapter_dtype = adapter_dtype
        self._extra_keys = extra_keys
        self._lock = threading.Lock()
        self._adapters: dict[int, _Adapter] = {}
        self._pending: dict[str, _PendingDigests] = {}
        self._logged_kinds: set[str] = set()
        self._threads = ThreadPoolExecutor(_THREADS, "kvferry-inputs")

    def is_ready(self, request: Any) -> bool:
        """Report whether the inputs of a request can be named, or never will be. The first call starts to digest
        them.
        """
        adapter, embeddings = _adapter_of(request), _embeddings_of(request)
        if adapter is None and embeddings is None:
            return True
        pending = self._find_pending(request)
        if pending is None:
            mask = getattr(request, "prompt_is_token_ids", None)
            future = self._threads.submit(self._make_digests, adapter, embeddings, mask)
            pending = _PendingDigests(adapter, embeddings, time.monotonic() + self._patience, future)
            self._pending[request.request_id] = pending
        return pending.future.done() or time.monotonic() >= pending.deadline

    def check_inputs(self, request: Any) -> None:
        """Raise UnnamableInputError if the inputs of a request, which are ready, cannot be named."""
        self._prompt_context(request)
        tuple(_media_spans(request))
        if _embeddings_of(request) is not None:
            prompt_tokens(request)
            self._finished_digests(request)

    def make_prompt(self, request: Any, end: int, **extra: str) -> Prompt:
        """Return the first tokens of a request with everything that their KV depends on.

        Args:
            request: vLLM's request.
            end: the number of tokens.
            extra: more entries of the context.

        Raises:
            UnnamableInputError: an input cannot be named.
        """
        context = json.dumps({**self._prompt_context(request), **extra}, sort_keys=True)
        spans = (*_media_spans(request), *self._embedding_spans(request, end))
        return Prompt(tuple(prompt_tokens(request)[:end]), context, spans, tenant_of_request(request))

    def log_refusal(self, request: Any, error: UnnamableInputError) -> None:
        """Log that a request is computed because of an input; each kind of input is logged once as a warning."""
        level = logging.DEBUG if error.kind in self._logged_kinds else logging.WARNING
        self._logged_kinds.add(error.kind)
        log.log(
            level,
            "request %s: an input cannot be named (%s); it is computed, and its KV is neither sent nor stored",
            request.request_id,
            error,
        )

    def forget_request(self, request: str) -> None:
        """Drop the digests of a request."""
        if (pending := self._pending.pop(request, None)) is not None:
            pending.future.cancel()

    def close(self) -> None:
        """Shut down."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    # ---- for the scheduler ----

    def _find_pending(self, request: Any) -> _PendingDigests | None:
        """Return the digests of a request, finished or not, if they belong to its current inputs."""
        pending = self._pending.get(request.request_id)
        same = pending is not None and pending.adapter is _adapter_of(request)
        return pending if pending is not None and same and pending.embeddings is _embeddings_of(request) else None

    def _finished_digests(self, request: Any) -> _Digests:
        pending = self._find_pending(request)
        if pending is None or not pending.future.done():
            raise UnnamableInputError("digests", f"its adapter or its embeddings were not read in {self._patience:g} s")
        return pending.future.result()

    def _prompt_context(self, request: Any) -> dict[str, Any]:
        """Return the inputs on which all tokens of a request depend."""
        context: dict[str, Any] = {}
        if salt := getattr(request, "cache_salt", None):
            context["salt"] = salt
        if _adapter_of(request) is not None:
            context["adapter"] = self._finished_digests(request).adapter
        if self._extra_keys is not None:
            known_count = (
                len(context)
                + (_embeddings_of(request) is not None)
                + any(not span.begin and span.end for span in _media_spans(request))
            )
            try:
                vllm_count = self._extra_keys(request)
            except Exception as error:
                raise UnnamableInputError("inputs", f"vLLM's own hash of them cannot be read: {error}") from error
            if vllm_count != known_count:
                raise UnnamableInputError(
                    "inputs", f"vLLM's own hash has {vllm_count} of them, of which {known_count} are known here"
                )
        return context

    def _embedding_spans(self, request: Any, end: int) -> Iterator[Span]:
        embeddings = _embeddings_of(request)
        if embeddings is None:
            return
        for span in self._finished_digests(request).embeddings:
            if span.end <= end:
                yield span
            elif span.begin < end:  # A block that is partly in the prompt.
                mask = getattr(request, "prompt_is_token_ids", None)
                yield _embedding_rows(embeddings).digest_span(span.begin, end, mask)

    # ---- on threads ----

    def _make_digests(self, adapter: Any, embeddings: Any, mask: Sequence[bool] | None) -> _Digests:
        try:
            adapter_name = [] if adapter is None else self._name_adapter(adapter)
            spans: tuple[Span, ...] = ()
            if embeddings is not None:
                rows = _embedding_rows(embeddings)
                begins = range(0, rows.count, self._block_tokens)
                spans = tuple(rows.digest_span(i, min(i + self._block_tokens, rows.count), mask) for i in begins)
            return _Digests(adapter_name, spans)
        except UnnamableInputError:
            raise
        except Exception as error:
            raise UnnamableInputError("adapter or embeddings", f"they cannot be read: {error}") from error

    def _name_adapter(self, adapter: Any) -> list[str]:
        """Return the name of an adapter. The engine loaded it before, so its files must not have changed since."""
        if getattr(adapter, "load_inplace", False):
            raise UnnamableInputError("adapter", f"{adapter.lora_name} was loaded in place; load it from its own path")
        path = str(adapter.lora_path)
        files = adapter_files(self._adapter_folder(path))
        if not files:
            raise UnnamableInputError("adapter", f"{path} has no adapter files")
        with self._lock:
            loaded = self._adapters.get(adapter.lora_int_id)
            if loaded is None:
                loaded = _Adapter(path, _file_state(files), adapter_digest(files))
                self._adapters[adapter.lora_int_id] = loaded
        if loaded.path != path:
            raise UnnamableInputError(
                "adapter", f"{path} has number {adapter.lora_int_id}, which {loaded.path} had before"
            )
        if loaded.files != _file_state(files):
            raise UnnamableInputError(
                "adapter", f"{path} was changed after it was loaded; load changed adapters from a new path"
            )
        shape = "3d" if getattr(adapter, "is_3d_lora_weight", False) else "2d"
        return [loaded.digest, shape, self._adapter_dtype]


@dataclass(frozen=True)
class _EmbeddingRows:
    """The rows of a tensor of embeddings, as bytes of this process's memory."""

    tensor: Any  # This keeps the memory alive.
    count: int
    row_bytes: int
    kind: str

    def digest_span(self, begin: int, end: int, mask: Sequence[bool] | None) -> Span:
        """Digest some rows, and which positions are tokens instead."""
        address = self.tensor.data_ptr() + begin * self.row_bytes
        digest = hashlib.sha256(f"{self.kind} {list(map(int, mask[begin:end])) if mask else []}".encode())
        digest.update((ctypes.c_uint8 * ((end - begin) * self.row_bytes)).from_address(address))
        return Span(begin, end, digest.hexdigest())


def _embedding_rows(embeddings: Any) -> _EmbeddingRows:
    if not str(embeddings.device).startswith("cpu"):
        raise UnnamableInputError("embeddings", f"they are in memory of {embeddings.device}")
    tensor = embeddings.contiguous()
    count = int(tensor.shape[0])
    row_bytes = tensor.numel() * tensor.element_size() // max(1, count)
    return _EmbeddingRows(tensor, count, row_bytes, f"{tensor.dtype} {list(tensor.shape[1:])}")


def tenant_of_request(request: Any) -> str:
    """Return the tenant of a request's chunks; empty for the default tenant."""
    return tenant_of_salt(getattr(request, "cache_salt", None) or "")


def prompt_length(request: Any) -> int:
    """Return the length of a prompt, of tokens or embeddings."""
    if (embeddings := _embeddings_of(request)) is not None and request.prompt_token_ids is None:
        return int(embeddings.shape[0])
    return len(request.prompt_token_ids or ())


def prompt_tokens(request: Any) -> Sequence[int]:
    """Return the tokens of a prompt, with 0 where an embedding replaces a token.

    It raises UnnamableInputError if that is not known for each token.
    """
    tokens: Sequence[int] = request.prompt_token_ids or ()
    if _embeddings_of(request) is None:
        return tokens
    if not tokens:
        return [0] * prompt_length(request)
    mask = getattr(request, "prompt_is_token_ids", None)
    if mask is None:
        return tokens
    if len(mask) != len(tokens):
        raise UnnamableInputError(
            "embeddings", f"{len(mask)} of {len(tokens)} tokens are marked as tokens or embeddings"
        )
    return [token if is_token else 0 for token, is_token in zip(tokens, mask, strict=True)]


def _adapter_of(request: Any) -> Any:
    return getattr(request, "lora_request", None)


def _embeddings_of(request: Any) -> Any:
    return getattr(request, "prompt_embeds", None)


def _media_spans(request: Any) -> Iterator[Span]:
    for feature in getattr(request, "mm_features", None) or ():
        if not feature.identifier:
            raise UnnamableInputError("media", "an image, a video or a sound has no identifier")
        begin = int(feature.mm_position.offset)
        yield Span(begin, begin + int(feature.mm_position.length), str(feature.identifier))


def _file_state(files: Sequence[str]) -> str:
    found = [(file, os.stat(file)) for file in files]
    return json.dumps([[file, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for file, s in found])
