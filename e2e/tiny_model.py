"""Writes a model of 0.3 million parameters, without weights, for a real vLLM on a CPU (`--load-format dummy`).

Run by the Python of that vLLM, which has what it imports: `python e2e/tiny_model.py DIRECTORY`.
"""

import sys
from pathlib import Path

from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, PreTrainedTokenizerFast

VOCABULARY = 512


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"],
        **shape,
    )
    config.save_pretrained(directory)
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(["a few words of text to begin with"] * 10, vocab_size=VOCABULARY)
    trained.add_special_tokens(["<s>", "</s>"])
    trained.save(str(directory / "trained.json"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(directory / "trained.json"), bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
