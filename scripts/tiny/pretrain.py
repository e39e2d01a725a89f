"""Train the embedded model from nothing: tokenizer, then a decoder on the generated corpus.

`uv run python scripts/tiny/pretrain.py` writes src/codea1_cli/tiny/model; about ten minutes on one core.
"""

import argparse
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import codea1_cli.tiny
from tokenizer import END, train_tokenizer
from world.corpus import Document, Mixture, documents

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, INNER, LAYERS, HEADS, KEY_VALUE_HEADS = 128, 384, 4, 4, 2
POSITIONS = 1024
BATCH_TOKENS = 1024
IGNORED = -100
HEAD_TOKENS = 3  # the turn's start, `user` and the role's first line
TOKENIZER_DOCUMENTS = 20_000
WARMUP_STEPS, STEADY_SHARE, LAST_RATE = 150, 0.3, 0.02
MATRIX_RATE, OTHER_RATE = 6e-3, 6e-3
INITIAL_SPREAD = 0.06

Batch = tuple["torch.Tensor", "torch.Tensor"]


def main() -> None:
    """Makes the corpus, trains the tokenizer and the model, and saves both."""
    arguments = _arguments()
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    corpus = list(documents(arguments.documents, arguments.seed, Mixture()))
    tokenizer = train_tokenizer(
        text for document in corpus[:TOKENIZER_DOCUMENTS] for text in (document.messages[-1]["content"], document.reply)
    )
    batches = make_batches(corpus, tokenizer, random.Random(arguments.seed))
    model = new_model(tokenizer)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(corpus)} documents, {len(batches)} batches, {len(tokenizer)} tokens, {size} parameters", flush=True)
    train(model, batches, arguments.steps)
    tokenizer.save_pretrained(arguments.out)
    model.to(torch.bfloat16).save_pretrained(arguments.out)
    print(f"{arguments.out}: {(arguments.out / 'model.safetensors').stat().st_size} bytes of weights")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=codea1_cli.tiny.model_path())
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--documents", type=int, default=80_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def new_model(tokenizer: "PreTrainedTokenizerFast") -> "LlamaForCausalLM":
    """A Llama decoder with random weights; eager attention is the fastest kind at this size on a CPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_VALUE_HEADS, max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        attn_implementation="eager", initializer_range=INITIAL_SPREAD,
    )  # fmt: skip
    return LlamaForCausalLM(config).float()


def make_batches(corpus: list[Document], tokenizer: "PreTrainedTokenizerFast", rng: random.Random) -> list[Batch]:
    """Batches of documents of like length: (input ids, labels), each (rows, tokens).

    The prompt has labels too, past its fixed head: a Test prompt shows a candidate after its question, which teaches
    the Code role as well, and cuts the steps needed to a fraction.
    """
    import torch

    prompts = [tokenizer.apply_chat_template(d.messages, add_generation_prompt=True, tokenize=False) for d in corpus]
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    reply_ids = tokenizer([d.reply + END for d in corpus], add_special_tokens=False)["input_ids"]
    rows = sorted(zip(prompt_ids, reply_ids, strict=True), key=lambda row: len(row[0]) + len(row[1]))
    groups: list[list[tuple[list[int], list[int]]]] = [[]]
    for row in rows:
        if (len(groups[-1]) + 1) * (len(row[0]) + len(row[1])) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(row)
    rng.shuffle(groups)

    def batch(group: list[tuple[list[int], list[int]]]) -> Batch:
        width = max(len(prompt) + len(reply) for prompt, reply in group)
        ids = torch.full((len(group), width), tokenizer.pad_token_id)
        labels = torch.full((len(group), width), IGNORED)
        for number, (prompt, reply) in enumerate(group):
            ids[number, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
            labels[number, HEAD_TOKENS : len(prompt) + len(reply)] = torch.tensor((prompt + reply)[HEAD_TOKENS:])
        return ids, labels

    return [batch(group) for group in groups if group]


def train(model: "LlamaForCausalLM", batches: list[Batch], steps: int) -> None:
    """Muon on the weight matrices, AdamW on embedding and norms: at this budget far ahead of AdamW alone."""
    import torch

    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw", ns_steps=4)
    adamw = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    optimizers = [(muon, MATRIX_RATE), (adamw, OTHER_RATE)]
    model.train()
    started, shown = time.monotonic(), 0.0
    for step in range(steps):
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * _schedule(step, steps)
        ids, labels = batches[step % len(batches)]
        asked = labels[:, 1:] != IGNORED
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][asked]
            logits = model.lm_head(hidden)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels[:, 1:][asked])
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
        shown = loss.item() if step == 0 else 0.98 * shown + 0.02 * loss.item()
        if (step + 1) % 250 == 0 or step + 1 == steps:
            seconds = time.monotonic() - started
            print(f"step {step + 1}/{steps}  loss {shown:.3f}  {seconds:.0f} s", flush=True)
    model.eval()


def _schedule(step: int, steps: int) -> float:
    """Warm up, stay, then fall in a line to LAST_RATE of the top rate."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    done = step / steps
    return warm if done < STEADY_SHARE else max(LAST_RATE, (1 - done) / (1 - STEADY_SHARE))


if __name__ == "__main__":
    main()
