"""Rows of a dataset on the hub, streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from codea1_cli.data.sources.base import Row
from codea1_cli.errors import EnvironmentFault, first_line
from codea1_cli.problems.benchmark_files import hub_rows


class HubRows:
    """One split of a dataset. Raises UserError for a dataset, configuration or split that does not exist, and
    EnvironmentFault when the hub cannot be reached."""

    def __init__(self, dataset: str, split: str, revision: str | None = None, config: str | None = None) -> None:
        self.dataset, self.split, self.revision, self.config = dataset, split, revision, config

    @property
    def name(self) -> str:
        return self.dataset

    def rows(self) -> Iterator[tuple[str, Row]]:
        return hub_rows(self.dataset, self.split, revision=self.revision, config=self.config)

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
                hint="check the name and the network; a downloaded file can be read in its place",
            ) from None
        return self.revision
