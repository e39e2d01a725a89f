"""Finding what a benchmark published: a file or folder that is given, CODEA1_BENCHMARKS, what was fetched before, or
where its authors publish it. Files are known by what they hold, whatever they are called.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli import hub
from codea1_cli.durable import write_atomic
from codea1_cli.environment import GITHUB, cache_folder, way_out
from codea1_cli.errors import CannotKeep, EnvironmentFault, Unreachable, UserError, size_text
from codea1_cli.files import kept_json, user_path
from codea1_cli.problems.row_files import Skipped, read_rows

FOLDER = "CODEA1_BENCHMARKS"
_ENDS = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet", ".csv")
_DEPTH = 2  # folders below the one that is given, such as data/bench, or the datasets of a clone
_LARGEST = 1 << 28  # bytes of a file that is looked into


@dataclass(frozen=True)
class PublicTask:
    """One task of a benchmark, as training data is compared with it; `code` is a whole program, `tests` Python source
    with asserts or nothing."""

    benchmark: str
    id: str
    question: str
    code: str
    entry_point: str
    tests: str = ""


@dataclass(frozen=True)
class Published:
    """Where a file is published: a repository at one commit, on the hub, or on GitHub where `blob` is given, Git's own
    hash of the file. `tasks`: how many it holds; `size`: about how many bytes."""

    repo: str
    commit: str
    file: str
    tasks: int
    size: int
    blob: str = ""


def find_file(title: str, holds: Callable[[Mapping[str, Any]], bool], published: Published, data: Path | None) -> Path:
    """The file of a benchmark.

    Args:
        title: the benchmark's, for messages.
        holds: whether a row is one of its tasks.
        data: the file, or a folder that holds it; None: the folder (or file) in CODEA1_BENCHMARKS, what is kept, or
            `published`.

    Raises:
        UserError: `data` is given and holds no such file.
        EnvironmentFault: it is nowhere here and cannot be fetched.
    """
    wanted = os.environ.get(FOLDER)
    for root, given in ((user_path(data) if data else None, True), (user_path(wanted) if wanted else None, False)):
        if root is None:
            continue
        if given and root.is_file():
            return root
        if found := _search(root, holds, published.tasks):
            return found
        if given:
            raise UserError(f"no {title} below {root}", hint="give the benchmark's file, or a folder that holds it")
        if not root.exists():
            raise UserError(f"{FOLDER}: there is no folder {root}", hint="name the folder with the benchmarks' files")
    try:
        path = _github(published) if published.blob else _from_hub(published)
    except (EnvironmentFault, UserError) as fault:
        hint = way_out(f"--data FILE, or {FOLDER}=FOLDER with it")
        hint = fault.hint or hint if isinstance(fault, CannotKeep) else hint
        what = f"no file of {title} is here: {fault.what}"
        if isinstance(fault, Unreachable):
            raise Unreachable(what, hint, fault.why) from None
        raise EnvironmentFault(what, hint=hint) from None
    _check(path, published)
    return path


def _search(root: Path, holds: Callable[[Mapping[str, Any]], bool], tasks: int) -> Path | None:
    """The file `root`, or below it, whose first row is a task; of several whole ones the one with as many tasks as
    there are, else the largest with fewer."""
    files = [root] if root.is_file() else sorted(_files(root, _DEPTH))
    found = [path for path in files if (row := _first(path)) is not None and holds(row)]
    counts = {path: count for path in found if (count := _count(path)) is not None} if len(found) > 1 else {}
    if not counts:
        return found[0] if found else None  # a broken one is told when it is read
    return max(
        counts, key=lambda path: (counts[path] <= tasks, counts[path] if counts[path] <= tasks else -counts[path])
    )


def _count(path: Path) -> int | None:
    """How many rows a file has; None for a broken one."""
    try:
        return sum(1 for _ in read_rows(path))
    except UserError:
        return None


def _files(folder: Path, depth: int) -> Iterator[Path]:
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name.startswith("."):
                continue
            if entry.is_dir() and depth:
                yield from _files(entry, depth - 1)
            elif entry.is_file() and entry.name.lower().endswith(_ENDS) and entry.stat().st_size < _LARGEST:
                yield entry


def _first(path: Path) -> Mapping[str, Any] | None:
    """A file's first row; None where it cannot be read, which whoever names the file is told."""
    try:
        row = next((row for _, row in read_rows(path)), None)
    except UserError:
        return None
    return None if isinstance(row, Skipped) else row


def _from_hub(published: Published) -> Path:
    file = hub.HubFile(published.file, published.size)
    repo = hub.HubRepo("dataset", published.repo, published.commit, (file,))
    if hub.kept_file(repo, file.name) is None:
        repo = hub.find_repo("dataset", published.repo, published.commit)  # within seconds, or not at all
        hub.announce(repo, [file.name])
    return hub.fetch(repo, file.name)


def _github(published: Published) -> Path:
    """A file of a GitHub repository at a commit, checked against Git's own hash."""
    path = cache_folder() / "github" / published.repo.replace("/", "--") / published.commit[:12] / published.file
    if path.is_file():
        return path
    where = (os.environ.get(GITHUB) or "https://raw.githubusercontent.com").rstrip("/")
    url = f"{where}/{published.repo}/{published.commit}/{published.file}"
    what = f"file {published.file} of {published.repo}"

    def asked(library: Any) -> int:
        answer = library.get_session().head(url, follow_redirects=True, headers={"accept-encoding": "identity"})
        answer.raise_for_status()
        return int(answer.headers.get("content-length") or published.size)

    size = hub.within(asked, what, "dataset", where)
    hub.tell(f"fetching 1 file ({size_text(size)}) of {published.repo} from {where}, kept in {path.parent}")
    from huggingface_hub.file_download import http_get

    partial = path.with_name(path.name + ".part")
    with hub.transfer(what, "dataset", where, path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "ab") as file:
            http_get(url, file, resume_size=file.tell(), tqdm_class=hub.progress_bar())
    content = partial.read_bytes()
    if hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() != published.blob:
        partial.unlink()
        raise EnvironmentFault(f"the {what} is not the published one", hint="it is removed: fetch it again")
    partial.rename(path)
    return path


def _check(path: Path, published: Published) -> None:
    """Compares a file with what it was when it was fetched.

    Raises:
        EnvironmentFault: it has changed.
    """
    notes = cache_folder() / "benchmarks.json"
    name = f"{published.repo}@{published.commit}/{published.file}"
    known, digest = kept_json(notes), hashlib.sha256(path.read_bytes()).hexdigest()
    if known.get(name, digest) != digest:
        raise EnvironmentFault(
            f"{path} has changed since it was fetched", hint=f"remove it, and it is fetched again; {notes} has its hash"
        )
    if name not in known:
        with suppress(OSError):
            notes.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(notes, json.dumps({**known, name: digest}, indent=1) + "\n")


def docstring_of(prompt: str) -> str:
    """The last triple-quoted text of a prompt, which need not parse by itself; without one the prompt."""
    for quote in ('"""', "'''"):
        parts = prompt.split(quote)
        if len(parts) >= 3:
            return parts[-2]
    return prompt
