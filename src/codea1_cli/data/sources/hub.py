"""Rows of a dataset on the hub, streamed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

from codea1_cli.data.sources.base import Row
from codea1_cli.errors import EnvironmentFault, UserError, first_line


class HubRows:
    """One split of a dataset. Raises UserError for a dataset, configuration or split that does not exist, and
    EnvironmentFault when the hub cannot be reached."""

    def __init__(self, dataset: str, split: str, revision: str | None = None, config: str | None = None) -> None:
        self.dataset, self.split, self.revision, self.config = dataset, split, revision, config

    @property
    def name(self) -> str:
        return self.dataset

    def rows(self) -> Iterator[tuple[str, Row]]:
        from datasets import load_dataset
        from datasets.exceptions import DatasetNotFoundError
        from httpx import HTTPError

        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries end in one error of ours
        try:
            stream = load_dataset(self.dataset, self.config, split=self.split, revision=self.revision, streaming=True)
            for number, row in enumerate(stream, start=1):
                yield f"{self.dataset}[{self.split}]:{number}", row
        except (DatasetNotFoundError, ConnectionError, TimeoutError, HTTPError) as error:
            raise EnvironmentFault(
                f"cannot load the dataset {self.dataset}: {first_line(error)}",
                hint=_ELSE,
            ) from None
        except ValueError as error:  # an unknown configuration or split: the message lists those there are
            raise UserError(f"{self.dataset}: {first_line(error)}", hint="choose with --split and --config") from None

    def identity(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "config": self.config, "split": self.split, "revision": self._pinned()}

    def _pinned(self) -> str | None:
        """The commit that the revision stands for, so that a resumed read cannot mix two; None for a local folder."""
        if os.path.isdir(self.dataset):
            return None
        from httpx import HTTPError
        from huggingface_hub import HfApi
        from huggingface_hub.errors import OfflineModeIsEnabled

        try:
            self.revision = HfApi().dataset_info(self.dataset, revision=self.revision, timeout=30).sha
        except (HTTPError, OfflineModeIsEnabled, OSError) as error:  # the hub's own errors are HTTPErrors
            raise EnvironmentFault(
                f"cannot reach the dataset {self.dataset}: {first_line(error)}",
                hint=_ELSE,
            ) from None
        return self.revision


_ELSE = "check the name and the network; a downloaded file can be read in its place"
