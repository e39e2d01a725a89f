"""The embedded model's tokenizer: byte-level BPE over words, digits one by one, the game's fixed lines one token each."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 1024
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# What both roles write over and over: cheap tokens make short replies, and a step of training is mostly sampling.
FIXED = (
    "Write this function.\n\n", "Write tests that break this solution.\n\n", "Write tests for this function.\n\n",
    "\n\n```python\n", "```python\n", "\n```", "def solve(", "):\n    return ", "    return ",
    "\n    for x in xs:\n        if ", " for x in xs if ", " for x in xs", " for c in ", "\nassert solve(", "assert solve(",
    "[x for x in xs", "sum(", "len(", "range(",
    "# edge cases", "# simple cases", "user\n", "assistant\n",
)  # fmt: skip

# The only names in the corpus: whatever problems are called, they are shown under these (`problems.prompts.KnownNames`).
KNOWN_NAMES = {
    "entry_point": "solve",
    "parameters": {"list": ["xs", "ys"], "str": ["s"], "int": ["n", "m"], "dict": ["d"]},
}

# The system message is left out: it says the same in every chat, and the model has few positions to spare for it.
CHAT_TEMPLATE = (
    "{%- for message in messages if message['role'] != 'system' -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def train_tokenizer(texts: Iterable[str]) -> "PreTrainedTokenizerFast":
    """Learn the merges from the corpus's texts; pads on the left, ends a reply with END."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    pieces = Regex(r" ?[A-Za-z_]+|[0-9]|[^A-Za-z0-9_\n]+|\n")  # punctuation keeps its spaces: `]) == ` can be one token
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, START, END])
    fixed = [AddedToken(text, normalized=False, special=False) for text in FIXED]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(fixed),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    between = re.compile("|".join(map(re.escape, sorted(FIXED, key=len, reverse=True))))
    tokenizer.train_from_iterator((piece for text in texts for piece in between.split(text)), trainer)
    tokenizer.add_tokens(fixed)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        padding_side="left",
        model_max_length=1024,
        known_names=KNOWN_NAMES,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
