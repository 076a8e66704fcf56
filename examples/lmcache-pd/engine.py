"""One vLLM engine, which computes the prompts that it is given by number, and prints a line for each.

usage: engine.py MODEL PORT    of LMCache's multi-process server; 0: it computes all by itself
"""

from __future__ import annotations

import os
import sys
from typing import Any

import serve  # noqa: F401 # It settles what LMCache and vLLM do not agree about.


def main() -> None:
    """Do what the command line says."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415 # After what is settled above.
    from vllm.config import KVTransferConfig  # noqa: PLC0415

    model, port = sys.argv[1], int(sys.argv[2])
    more: dict[str, Any] = {}
    if port:
        more["kv_transfer_config"] = KVTransferConfig(
            kv_connector="LMCacheMPConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port},
        )
    llm = LLM(
        model=model,
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=4096,
        seed=0,
        enable_prefix_caching=False,
        **more,
    )
    sampling = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, detokenize=False)
    for number, length in enumerate((300, 700, 1500)):
        prompt = [(place * 7919 + number * 31) % 256 for place in range(length)]
        out = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)[0]
        tokens = " ".join(map(str, out.outputs[0].token_ids))
        print(f"{length} {out.num_cached_tokens or 0} {tokens}", file=_ANSWERS, flush=True)
    os._exit(0)  # LMCache's client has threads that do not end.


if __name__ == "__main__":
    _ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What vLLM says goes to the log.
    main()
