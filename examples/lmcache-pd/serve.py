"""vLLM's API server beside LMCache: its arguments are those of vllm.entrypoints.openai.api_server."""

from __future__ import annotations

import runpy

import llvmlite.binding.ffi

# LMCache imports numba before vLLM 0.32 looks for kernels, also in what llvmlite loads late: that has no special names.
_PLAIN = type(llvmlite.binding.ffi.lib).__getattr__


def _answer(lib: object, name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _PLAIN(lib, name)


type(llvmlite.binding.ffi.lib).__getattr__ = _answer  # In each process that vLLM starts, too: they import this file.

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
