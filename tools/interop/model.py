"""Makes a Llama small enough for one core: random weights out of a seed, no tokenizer.

usage: model.py DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD, VOCABULARY = 4, 256, 512, 4, 2, 64, 320
SEED = 1234

# Attention is made to matter: with queries and keys this large a wrong block changes the tokens that follow.
QUERY_KEY, VALUE_OUT, MLP, EMBEDDING, LAST = 0.12, 0.15, 0.06, 1.0, 0.25


def config() -> dict[str, object]:
    """Say what the model is, as its config.json does."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
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


def weights() -> dict[str, torch.Tensor]:
    """Draw the weights, the same each time."""
    generator = torch.Generator().manual_seed(SEED)

    def drawn(rows: int, columns: int, spread: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * spread

    all_ = {
        "model.embed_tokens.weight": drawn(VOCABULARY, HIDDEN, EMBEDDING),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": drawn(VOCABULARY, HIDDEN, LAST),
    }
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        all_ |= {
            of + "self_attn.q_proj.weight": drawn(HEADS * HEAD, HIDDEN, QUERY_KEY),
            of + "self_attn.k_proj.weight": drawn(KV_HEADS * HEAD, HIDDEN, QUERY_KEY),
            of + "self_attn.v_proj.weight": drawn(KV_HEADS * HEAD, HIDDEN, VALUE_OUT),
            of + "self_attn.o_proj.weight": drawn(HIDDEN, HEADS * HEAD, VALUE_OUT),
            of + "mlp.gate_proj.weight": drawn(INNER, HIDDEN, MLP),
            of + "mlp.up_proj.weight": drawn(INNER, HIDDEN, MLP),
            of + "mlp.down_proj.weight": drawn(HIDDEN, INNER, MLP),
            of + "input_layernorm.weight": torch.ones(HIDDEN),
            of + "post_attention_layernorm.weight": torch.ones(HIDDEN),
        }
    return all_


def main() -> None:
    """Do what the command line says."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config(), indent=1), encoding="utf-8")
    save_file(weights(), directory / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
