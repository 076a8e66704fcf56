"""What the KV of a request depends on besides its tokens: salt, adapter, media, and embeddings in place of tokens.

These are the inputs of vLLM's own block hash. An adapter is named by the content of its files, and embeddings by their
bytes: both are digested on threads, and the scheduler has the request wait until they are. An input that no name can
express is refused by name: the request is computed, and its KV goes nowhere.
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

from kvferry.vllm.log import log
from kvferry.vllm.weights import adapter_digest, adapter_files
from kvferry.vllm.words import Prompt, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_THREADS = 2


class UnnamedError(ValueError):
    """The KV of a request depends on something that no name expresses."""

    def __init__(self, kind: str, why: str) -> None:
        """Say what it is, as a word for people, and why."""
        super().__init__(f"{kind}: {why}")
        self.kind = kind


@dataclass(frozen=True)
class _Adapter:
    """An adapter as it was when a request first named it."""

    path: str
    # What the file system says of its files: another text, if one of them was written since.
    files: str
    digest: str


@dataclass(frozen=True)
class _Digested:
    """The digests of a request."""

    adapter: list[str]
    embeddings: tuple[Span, ...]


@dataclass(frozen=True)
class _Asked:
    """Digests that are being made."""

    adapter: Any
    embeddings: Any
    until: float
    made: Future[_Digested]


class Inputs:
    """Names the inputs of an engine's requests. One thread may call it: the scheduler's."""

    def __init__(
        self,
        block_tokens: int,
        patience: float,
        *,
        adapter_folder: Callable[[str], str] = os.path.abspath,
        adapter_dtype: str = "",
        extra_keys: Callable[[Any], int] | None = None,
    ) -> None:
        """Name the inputs of blocks of so many tokens. What is not digested within the patience, in seconds, is not.

        adapter_folder finds an adapter's files as vLLM does; it may take long. extra_keys says how many inputs beside
        tokens vLLM's own hash of a request's first token has.
        """
        self._block_tokens = block_tokens
        self._patience = patience
        self._adapter_folder = adapter_folder
        self._adapter_dtype = adapter_dtype
        self._extra_keys = extra_keys
        self._lock = threading.Lock()
        self._adapters: dict[int, _Adapter] = {}
        self._asked: dict[str, _Asked] = {}
        self._said: set[str] = set()
        self._threads = ThreadPoolExecutor(_THREADS, "kvferry-inputs")

    def ready(self, request: Any) -> bool:
        """Say whether the inputs of a request can be named, or never will be; begin to digest them."""
        adapter, embeddings = _adapter_of(request), _embeddings_of(request)
        if adapter is None and embeddings is None:
            return True
        asked = self._current(request)
        if asked is None:
            mask = getattr(request, "prompt_is_token_ids", None)
            made = self._threads.submit(self._digest, adapter, embeddings, mask)
            asked = _Asked(adapter, embeddings, time.monotonic() + self._patience, made)
            self._asked[request.request_id] = asked
        return asked.made.done() or time.monotonic() >= asked.until

    def check(self, request: Any) -> None:
        """Raise UnnamedError if the inputs of a request cannot be named, after they were ready."""
        self._beside(request)
        tuple(_media(request))
        if _embeddings_of(request) is not None:
            tokens_of(request)
            self._digested(request)

    def prompt(self, request: Any, end: int, **more: str) -> Prompt:
        """Return the first tokens of a request with all that their KV depends on. More is added to what is beside.

        It raises UnnamedError, as check does.
        """
        beside = json.dumps({**self._beside(request), **more}, sort_keys=True)
        return Prompt(tuple(tokens_of(request)[:end]), beside, (*_media(request), *self._embeddings(request, end)))

    def refuse(self, request: Any, error: UnnamedError) -> None:
        """Tell people that a request is computed because of an input: of each kind of input once as a warning."""
        level = logging.DEBUG if error.kind in self._said else logging.WARNING
        self._said.add(error.kind)
        log.log(
            level, "request %s: no name has its %s; it is computed, and its KV goes nowhere", request.request_id, error
        )

    def forget(self, request: str) -> None:
        """Know that a request is over."""
        if (asked := self._asked.pop(request, None)) is not None:
            asked.made.cancel()

    def close(self) -> None:
        """End."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    # ---- for the scheduler ----

    def _current(self, request: Any) -> _Asked | None:
        """Give the digests of a request, be they made or not, if they are of what the request has now."""
        asked = self._asked.get(request.request_id)
        same = asked is not None and asked.adapter is _adapter_of(request)
        return asked if asked is not None and same and asked.embeddings is _embeddings_of(request) else None

    def _digested(self, request: Any) -> _Digested:
        asked = self._current(request)
        if asked is None or not asked.made.done():
            raise UnnamedError("digests", f"its adapter or its embeddings were not read in {self._patience:g} s")
        return asked.made.result()

    def _beside(self, request: Any) -> dict[str, Any]:
        """Give what all tokens of a request depend on."""
        found: dict[str, Any] = {}
        if salt := getattr(request, "cache_salt", None):
            found["salt"] = salt
        if _adapter_of(request) is not None:
            found["adapter"] = self._digested(request).adapter
        if self._extra_keys is not None:
            known = (
                len(found)
                + (_embeddings_of(request) is not None)
                + any(not span.begin and span.end for span in _media(request))
            )
            try:
                theirs = self._extra_keys(request)
            except Exception as error:
                raise UnnamedError("inputs", f"vLLM's own hash of them cannot be looked at: {error}") from error
            if theirs != known:
                raise UnnamedError("inputs", f"vLLM's own hash has {theirs} of them, of which {known} are known here")
        return found

    def _embeddings(self, request: Any, end: int) -> Iterator[Span]:
        embeddings = _embeddings_of(request)
        if embeddings is None:
            return
        for span in self._digested(request).embeddings:
            if span.end <= end:
                yield span
            elif span.begin < end:  # A block of which the prompt has a part.
                mask = getattr(request, "prompt_is_token_ids", None)
                yield _rows(embeddings).span(span.begin, end, mask)

    # ---- on threads ----

    def _digest(self, adapter: Any, embeddings: Any, mask: Sequence[bool] | None) -> _Digested:
        try:
            named = [] if adapter is None else self._adapter(adapter)
            spans: tuple[Span, ...] = ()
            if embeddings is not None:
                rows = _rows(embeddings)
                begins = range(0, rows.count, self._block_tokens)
                spans = tuple(rows.span(i, min(i + self._block_tokens, rows.count), mask) for i in begins)
            return _Digested(named, spans)
        except UnnamedError:
            raise
        except Exception as error:
            raise UnnamedError("adapter or embeddings", f"they cannot be read: {error}") from error

    def _adapter(self, adapter: Any) -> list[str]:
        """Name an adapter. The engine has it in memory, as its files were when it was loaded: they must be the same."""
        if getattr(adapter, "load_inplace", False):
            raise UnnamedError("adapter", f"{adapter.lora_name} was loaded in place; load it from a path of its own")
        path = str(adapter.lora_path)
        files = adapter_files(self._adapter_folder(path))
        if not files:
            raise UnnamedError("adapter", f"{path} has no files of an adapter")
        with self._lock:
            known = self._adapters.get(adapter.lora_int_id)
            if known is None:
                known = _Adapter(path, _state(files), adapter_digest(files))
                self._adapters[adapter.lora_int_id] = known
        if known.path != path:
            raise UnnamedError("adapter", f"{path} has number {adapter.lora_int_id}, which was that of {known.path}")
        if known.files != _state(files):
            raise UnnamedError(
                "adapter", f"{path} was changed after it was loaded; load changed adapters from a path of their own"
            )
        shape = "3d" if getattr(adapter, "is_3d_lora_weight", False) else "2d"
        return [known.digest, shape, self._adapter_dtype]


@dataclass(frozen=True)
class _Rows:
    """The rows of a tensor of embeddings, as bytes of this process' memory."""

    tensor: Any  # The memory is there as long as this is.
    count: int
    row_bytes: int
    kind: str

    def span(self, begin: int, end: int, mask: Sequence[bool] | None) -> Span:
        """Digest some rows, and where tokens count instead of them."""
        address = self.tensor.data_ptr() + begin * self.row_bytes
        digest = hashlib.sha256(f"{self.kind} {list(map(int, mask[begin:end])) if mask else []}".encode())
        digest.update((ctypes.c_uint8 * ((end - begin) * self.row_bytes)).from_address(address))
        return Span(begin, end, digest.hexdigest())


def _rows(embeddings: Any) -> _Rows:
    if not str(embeddings.device).startswith("cpu"):
        raise UnnamedError("embeddings", f"they are in memory of {embeddings.device}")
    tensor = embeddings.contiguous()
    count = int(tensor.shape[0])
    row_bytes = tensor.numel() * tensor.element_size() // max(1, count)
    return _Rows(tensor, count, row_bytes, f"{tensor.dtype} {list(tensor.shape[1:])}")


def length_of(request: Any) -> int:
    """Return how many tokens a prompt has, be they tokens or embeddings."""
    if (embeddings := _embeddings_of(request)) is not None and request.prompt_token_ids is None:
        return int(embeddings.shape[0])
    return len(request.prompt_token_ids or ())


def tokens_of(request: Any) -> Sequence[int]:
    """Return the tokens of a prompt: 0 where an embedding is in place of one.

    It raises UnnamedError if nothing says so of each token.
    """
    tokens: Sequence[int] = request.prompt_token_ids or ()
    if _embeddings_of(request) is None:
        return tokens
    if not tokens:
        return [0] * length_of(request)
    mask = getattr(request, "prompt_is_token_ids", None)
    if mask is None:
        return tokens
    if len(mask) != len(tokens):
        raise UnnamedError("embeddings", f"of {len(tokens)} tokens {len(mask)} say whether they are embeddings")
    return [token if is_token else 0 for token, is_token in zip(tokens, mask, strict=True)]


def _adapter_of(request: Any) -> Any:
    return getattr(request, "lora_request", None)


def _embeddings_of(request: Any) -> Any:
    return getattr(request, "prompt_embeds", None)


def _media(request: Any) -> Iterator[Span]:
    for feature in getattr(request, "mm_features", None) or ():
        if not feature.identifier:
            raise UnnamedError("media", "an image, a video or a sound has no identifier")
        begin = int(feature.mm_position.offset)
        yield Span(begin, begin + int(feature.mm_position.length), str(feature.identifier))


def _state(files: Sequence[str]) -> str:
    found = [(file, os.stat(file)) for file in files]
    return json.dumps([[file, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for file, s in found])
