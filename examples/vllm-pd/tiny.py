"""Creates a model that runs anywhere: a Llama with random weights (tools/interop/model.py), whose tokens are bytes.

usage: tiny.py DIRECTORY
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent


def tokenizer() -> PreTrainedTokenizerFast:
    """Create a tokenizer with one token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        chat_template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tiny.py DIRECTORY")
    beside = HERE / "model.py"  # In the image.
    runpy.run_path(str(beside if beside.exists() else HERE.parents[1] / "tools/interop/model.py"), run_name="__main__")
    tokenizer().save_pretrained(sys.argv[1])
