"""How long a problem's prompt is, counted as training will."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import code_messages


class PromptCounter:
    """Tokens of the Code LLM's rendered prompt under a model's tokenizer and chat template.

    Raises:
        UserError: the tokenizer cannot be found or has no chat template, or the template does not render.
    """

    def __init__(self, tokenizer: str, chat_template: Path | None = None) -> None:
        from codea1_cli.models.tokenizers import load_tokenizer

        self.tokenizer: Any = load_tokenizer(tokenizer)
        if chat_template is not None:
            try:
                self.tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"cannot read {chat_template}: {error}", hint="give a Jinja file") from None

    def count(self, problem: Problem) -> int:
        from jinja2 import TemplateError

        from codea1_cli.models.tokenizers import render

        try:
            return len(render(self.tokenizer, code_messages(problem)))
        except TemplateError as error:
            raise UserError(f"the chat template does not render: {error}", hint="see --chat-template") from None
