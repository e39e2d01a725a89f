"""Models: finding one by name, its tokenizer and chat template, and sampling from it outside training."""
