"""Digests of the files of a model's weights or of an adapter: files with equal content have one digest, wherever
they are.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

# Formats in which vLLM reads plain files of a folder. Other formats (tensorizer, dummy, plug-ins) load weights from
# elsewhere.
FORMATS = frozenset(
    {
        "auto",
        "hf",
        "safetensors",
        "fastsafetensors",
        "instanttensor",
        "mistral",
        "pt",
        "npcache",
        "bitsandbytes",
        "gguf",
        "sharded_state",
        "runai_streamer",
        "runai_streamer_sharded",
    }
)
# The patterns that vLLM tries, in order: it loads only the files of the first pattern that matches.
_PATTERNS = ("consolidated*.safetensors", "*.safetensors", "*.bin", "*.pt", "*.gguf")
_INDEXES = {"consolidated*.safetensors": "consolidated.safetensors.index.json"}
_INDEX = "model.safetensors.index.json"
_NOT_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")

# Files that determine how an image, a video or a sound is converted to the model's input.
_PROCESSORS = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")

_ADAPTER = ("adapter_config.json", "adapter_model.*", "new_embeddings.*")

# The Hub's client stores a large file under the SHA-256 of its content: models--.../blobs/<64 hex digits>.
_HUB_BLOB = re.compile(r"[/\\](?:models|datasets|spaces)--[^/\\]+[/\\]blobs[/\\]([0-9a-f]{64})$")

# Files that are hashed concurrently, because hashing one file keeps one core busy; and bytes per read.
_MAX_CONCURRENT = 8
_BUFFER = 4 << 20


class UnknownContentError(ValueError):
    """The weights are not files that can be read here. The text says why."""


def weights_digest(model: str, load_format: str, revision: str | None = None, cache: str | None = None) -> str:
    """Return the digest of the files that vLLM loads for a model.

    The digest depends on the content of the files, and neither on their location nor on the model's name.

    Args:
        model: a folder, a file, or a name on the Hub.
        load_format: vLLM's load format.
        revision: the revision on the Hub.
        cache: the download folder of the Hub's client.

    Raises:
        UnknownContentError: the weights are not files on this host.
    """
    if load_format not in FORMATS:
        raise UnknownContentError(f"load_format {load_format} loads weights that are not files of the model")
    if os.path.isfile(model):
        return _combined_digest([content_digest(model)])
    folder = model if os.path.isdir(model) else _hub_folder(model, revision, cache)
    files = weight_files(folder, plain=load_format in ("auto", "hf", "mistral"))
    if not files:
        raise UnknownContentError(f"{folder} has no weights ({', '.join(_PATTERNS)})")
    return _combined_digest(_content_digests(files))


def weight_files(folder: str, *, plain: bool = True) -> list[str]:
    """Return the files that vLLM loads from a folder.

    Formats that are not plain have their own rules: for them all files that may contain weights are returned, so that
    no loaded file is missed.
    """
    names = [name for name in sorted(os.listdir(folder)) if os.path.isfile(os.path.join(folder, name))]
    found: list[str] = []
    for pattern in _PATTERNS:
        matched = [name for name in names if fnmatch(name, pattern) and name not in _NOT_WEIGHTS]
        if pattern.endswith(".safetensors") and plain:
            matched = _filter_by_index(folder, matched, _INDEXES.get(pattern, _INDEX))
        found += [name for name in matched if name not in found]
        if found and plain:
            break
    return [os.path.join(folder, name) for name in found]


def processor_digest(model: str, revision: str | None = None, cache: str | None = None) -> str:
    """Return the digest of the files that determine how a model's media are processed."""
    folder = model if os.path.isdir(model) else _hub_folder(model, revision, cache)
    files = [file for name in _PROCESSORS if os.path.isfile(file := os.path.join(folder, name))]
    return _combined_digest(_named_digests(files))


def adapter_files(folder: str) -> list[str]:
    """Return the files of an adapter: its configuration and its weights."""
    names = sorted(name for name in os.listdir(folder) if any(fnmatch(name, pattern) for pattern in _ADAPTER))
    return [os.path.join(folder, name) for name in names]


def adapter_digest(files: Sequence[str]) -> str:
    """Return the digest of an adapter's files."""
    return _combined_digest(_named_digests(files))


def content_digest(file: str) -> str:
    """Return the SHA-256 of a file's content. A file that the Hub's client has named by its content is not read."""
    if (blob := _HUB_BLOB.search(os.path.realpath(file))) is not None:
        return blob[1]
    digest, buffer = hashlib.sha256(), memoryview(bytearray(_BUFFER))
    with open(file, "rb", buffering=0) as opened:
        while count := opened.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def _content_digests(files: Collection[str]) -> list[str]:
    with ThreadPoolExecutor(_MAX_CONCURRENT, "kvferry-digest") as threads:
        return list(threads.map(content_digest, files))


def _named_digests(files: Sequence[str]) -> list[str]:
    return [f"{os.path.basename(file)} {digest}" for file, digest in zip(files, _content_digests(files), strict=True)]


def _combined_digest(digests: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _filter_by_index(folder: str, names: list[str], index: str) -> list[str]:
    """Drop files that the index of the model does not name, as vLLM does: they duplicate other files."""
    try:
        with open(os.path.join(folder, index), encoding="utf-8") as opened:
            loaded = set(json.load(opened)["weight_map"].values())
    except FileNotFoundError:
        return names
    return [name for name in names if name in loaded]


def _hub_folder(model: str, revision: str | None, cache: str | None) -> str:
    """Return the folder in which the Hub's client stores a model that the engine has loaded. Nothing is downloaded."""
    try:
        hub = importlib.import_module("huggingface_hub")
        return str(hub.snapshot_download(model, revision=revision, cache_dir=cache, local_files_only=True))
    except Exception as error:
        raise UnknownContentError(f"{model} is neither a folder nor in the Hub's cache: {error}") from error
