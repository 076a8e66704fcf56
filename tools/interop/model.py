"""Makes a Llama small enough for one core: random weights out of a seed, no tokenizer.

usage: model.py DIRECTORY [tiny|small]

tiny, the default, is for tokens that are compared; with small a prompt of 4096 tokens takes seconds.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

HEAD, VOCABULARY = 64, 320
SEED = 1234


@dataclass(frozen=True)
class Sizes:
    """How large a model is."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int

    @property
    def token_bytes(self) -> int:
        """Of the KV of one token, in all layers: keys and values of 4 bytes."""
        return self.layers * 2 * self.kv_heads * HEAD * 4


MODELS = {
    "tiny": Sizes(layers=4, hidden=256, inner=512, heads=4, kv_heads=2),
    "small": Sizes(layers=8, hidden=512, inner=1536, heads=8, kv_heads=4),
}

# Attention is made to matter: with queries and keys this large a wrong block changes the tokens that follow.
QUERY_KEY, VALUE_OUT, MLP, EMBEDDING, LAST = 0.12, 0.15, 0.06, 1.0, 0.25


def config(sizes: Sizes) -> dict[str, object]:
    """Say what a model is, as its config.json does."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": HEAD,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": VOCABULARY - 2,
        "eos_token_id": VOCABULARY - 1,
        "attention_bias": False,
    }


def weights(sizes: Sizes) -> dict[str, torch.Tensor]:
    """Draw the weights, the same each time. Sums over more are of less each: the spreads are the tiny model's."""
    generator = torch.Generator().manual_seed(SEED)
    hidden, inner, heads, kv_heads = sizes.hidden, sizes.inner, sizes.heads * HEAD, sizes.kv_heads * HEAD
    less = math.sqrt(MODELS["tiny"].hidden / hidden)

    def drawn(rows: int, columns: int, spread: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * spread

    all_ = {
        "model.embed_tokens.weight": drawn(VOCABULARY, hidden, EMBEDDING),
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": drawn(VOCABULARY, hidden, LAST * less),
    }
    for layer in range(sizes.layers):
        of = f"model.layers.{layer}."
        all_ |= {
            of + "self_attn.q_proj.weight": drawn(heads, hidden, QUERY_KEY * less),
            of + "self_attn.k_proj.weight": drawn(kv_heads, hidden, QUERY_KEY * less),
            of + "self_attn.v_proj.weight": drawn(kv_heads, hidden, VALUE_OUT * less),
            of + "self_attn.o_proj.weight": drawn(hidden, heads, VALUE_OUT * less),
            of + "mlp.gate_proj.weight": drawn(inner, hidden, MLP * less),
            of + "mlp.up_proj.weight": drawn(inner, hidden, MLP * less),
            of + "mlp.down_proj.weight": drawn(hidden, inner, MLP * less),
            of + "input_layernorm.weight": torch.ones(hidden),
            of + "post_attention_layernorm.weight": torch.ones(hidden),
        }
    return all_


def main() -> None:
    """Do what the command line says."""
    if len(sys.argv) not in (2, 3) or (model := (*sys.argv, "tiny")[2]) not in MODELS:
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    about, there = json.dumps(config(MODELS[model]), indent=1), directory / "config.json"
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()) and not (there.exists() and there.read_text(encoding="utf-8") == about):
        sys.exit(f"{directory} has something else than this model; name a directory that is new or empty")
    there.write_text(about, encoding="utf-8")
    save_file(weights(MODELS[model]), directory / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
