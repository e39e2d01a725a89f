"""Files of the Hugging Face hub, and of GitHub: asked for within seconds, fetched once, checked, kept.

huggingface_hub does the transfers. Its variables hold: HF_ENDPOINT names a mirror, HF_TOKEN opens what is private,
HF_HOME is where files are kept, HF_HUB_OFFLINE asks nobody, HTTPS_PROXY is the way out.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from codea1_cli.durable import write_atomic
from codea1_cli.environment import cache_folder, connect, endpoint, hub_cache, offline, proxy_to, way_out
from codea1_cli.errors import (
    CannotKeep,
    CodeA1Error,
    EnvironmentFault,
    Unreachable,
    UserError,
    first_line,
    no_logins,
    size_text,
)
from codea1_cli.files import kept_json

Kind = Literal["dataset", "model"]
T = TypeVar("T")
Fault = Callable[[Exception], CodeA1Error]

CONNECT_S = 1.5  # that a name and a connection may take, tried before the libraries that ask are loaded
REACH_S = 3.0  # that an answer may take then; with a command's start this stays below five seconds
_AGAIN_S = 30.0  # how long a hub that did not answer is taken for unreachable
_TRIES = 3  # of one file, each of which huggingface_hub tries to resume by itself
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CANNOT_KEEP = {errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.ENOENT}
_OFFLINE = "HF_HUB_OFFLINE is set"
_unreachable: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True)
class HubFile:
    """A file of a repository; sha256 is what the hub states, where it does."""

    name: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True)
class HubRepo:
    """A repository at one commit; `configs` are the configurations of a dataset's card."""

    kind: Kind
    id: str
    commit: str
    files: tuple[HubFile, ...]
    configs: list[dict[str, Any]] = field(default_factory=list)


# -- asking ------------------------------------------------------------------------------------------------------------
def find_repo(kind: Kind, id: str, revision: str | None = None) -> HubRepo:
    """What a repository holds at a revision: a commit, branch or tag; None: its main branch when it was first asked.

    A commit never changes and is asked for once. Where the hub cannot be reached, what it said before holds.

    Raises:
        UserError: there is no such repository or revision.
        EnvironmentFault: the hub cannot be reached, or wants a token.
    """
    known = note_file(kind, id, revision)
    note = kept_json(known)
    kept = HubRepo(**{**note, "files": tuple(HubFile(**file) for file in note["files"])}) if note else None
    if kept and (revision is None or _COMMIT.fullmatch(revision)):
        return kept
    try:
        repo = _ask(kind, id, revision)
    except EnvironmentFault:
        if kept:
            return kept
        raise
    with contextlib.suppress(OSError):  # else it is asked again
        known.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(known, json.dumps(asdict(repo)) + "\n")
    return repo


def note_file(kind: Kind, id: str, revision: str | None = None) -> Path:
    """Where it is noted what the hub said of a repository."""
    return cache_folder() / "hub" / f"{kind}s--{id}@{revision or 'main'}.json".replace("/", "--")


def _ask(kind: Kind, id: str, revision: str | None) -> HubRepo:
    address, late = endpoint(), 10 + _patience(REACH_S)  # when the patience is long over: `within` says so first
    options: Any = {"repo_type": kind, "revision": revision, "files_metadata": True, "timeout": late}
    info: Any = within(lambda hub: hub.HfApi(address).repo_info(id, **options), f"{kind} {id}", kind, address)
    card = info.card_data.to_dict() if info.card_data is not None else {}
    files = [HubFile(one.rfilename, one.size or 0, one.lfs.sha256 if one.lfs else None) for one in info.siblings or ()]
    configs = [entry for entry in card.get("configs") or () if isinstance(entry, dict)]
    return HubRepo(kind, id, info.sha, tuple(files), configs)


def _patience(usual: float) -> float:
    wanted = os.environ.get("HF_HUB_ETAG_TIMEOUT", "")
    return float(wanted) if wanted.isdecimal() else usual


def within(ask: Callable[[Any], T], what: str, kind: Kind, where: str, fault: Fault | None = None) -> T:
    """What `ask`, given huggingface_hub, says, or one error within the patience, whatever a resolver or a proxy does.

    Raises:
        UserError, EnvironmentFault: as `find_repo`, and `what` is named; or what `fault` makes of the library's error.
    """
    if offline():
        raise Unreachable(f"the {what} is not here, and {_OFFLINE}", way_out(kind), _OFFLINE)
    since, why = _unreachable.get(where, (0.0, ""))
    if why and time.monotonic() - since < _AGAIN_S:
        raise Unreachable(f"cannot fetch the {what}: {why}", way_out(kind), why)
    try:
        _bounded(lambda: connect(where), _patience(CONNECT_S))
        import huggingface_hub  # half a second, which nobody waits for where there is no network

        return _bounded(lambda: ask(huggingface_hub), _patience(REACH_S))
    except Exception as error:
        if why := unreached(error, where):
            _unreachable[where] = (time.monotonic(), why)
        raise (fault(error) if fault else _fault(error, what, kind, where)) from None


def unreached(error: BaseException, where: str) -> str:
    """What says that `where` did not answer, however it was asked; empty for every other error."""
    httpx = sys.modules.get("httpx")  # a second to load, and not loaded where there was no connection
    silent = (ConnectionError, TimeoutError, *([httpx.TransportError] if httpx else []))
    error = error.__cause__ if isinstance(error.__cause__, silent) else error  # huggingface_hub's own words say less
    if not isinstance(error, silent):
        return ""
    return f"{where} cannot be reached{f' by the proxy {by}' if (by := proxy_to(where)) else ''}: {first_line(error)}"


def _bounded(call: Callable[[], T], seconds: float) -> T:
    """What `call` returns within so many seconds, or its error; a TimeoutError else, which says them."""
    found, failed = list[T](), list[Exception]()

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise failed[0] if failed else TimeoutError(f"no answer within {seconds:.1f} s")
    return found[0]


def _fault(error: Exception, what: str, kind: Kind, where: str, folder: Path | None = None) -> CodeA1Error:
    """What a transfer's error means to whoever typed the command."""
    if isinstance(error, CodeA1Error):
        return error
    if why := unreached(error, where):
        return Unreachable(f"cannot fetch the {what}: {why}", way_out(kind), why)
    from huggingface_hub import errors as hub

    page = f"{where}/{'datasets/' if kind == 'dataset' else ''}{what.split()[-1]}"
    token = "HF_TOKEN=TOKEN, or `hf auth login`, with a token that may read it"
    if isinstance(error, hub.GatedRepoError):
        return EnvironmentFault(f"the {what} is gated", hint=f"accept its terms at {page}, then {token}")
    if isinstance(error, hub.RevisionNotFoundError):
        return UserError(f"the {what} has no such revision", hint=f"see {page}")
    status = error.response.status_code if isinstance(error, hub.HfHubHTTPError) else 0
    given = bool(os.environ.get("HF_TOKEN"))
    if isinstance(error, hub.RepositoryNotFoundError | hub.HFValidationError) or status == 404:
        why = f"it is private{', and the token that is set may not read it' if given else ''}"
        return UserError(f"there is no {what} on {where}, or {why}", hint=f"check the name; else {token}")
    if status in (401, 403):
        who = "the token that is set" if given else "whoever has no token"
        return EnvironmentFault(f"{where} refuses the {what} to {who}", hint=token)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_room(what, folder or hub_cache())
    if isinstance(error, OSError) and error.errno in _CANNOT_KEEP:
        why = f"cannot keep the {what}: {error.strerror}: {error.filename}"
        place = "HF_HOME" if folder in (None, hub_cache()) else "CODEA1_CACHE"
        return CannotKeep(why, hint=f"{place}=FOLDER keeps it elsewhere")
    return EnvironmentFault(f"cannot fetch the {what}: {first_line(error)}", hint=way_out(kind))


def no_room(what: str, folder: Path, need: int = 0) -> EnvironmentFault:
    """The error of a disk that is full, or too small for `need` bytes."""
    wanted = f": {size_text(need)} are needed" if need else ""
    return CannotKeep(
        f"no room in {folder} for the {what}{wanted}",
        hint="make room, or name another folder (HF_HOME, CODEA1_CACHE); what is there already is kept",
    )


# -- fetching ----------------------------------------------------------------------------------------------------------
def kept_file(repo: HubRepo, name: str) -> Path | None:
    """The file as it was fetched before; None when it was not."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo.id, name, cache_dir=hub_cache(), revision=repo.commit, repo_type=repo.kind)
    return Path(found) if isinstance(found, str) else None


def announce(repo: HubRepo, names: Sequence[str]) -> None:
    """Says what of these files would be fetched, how much and where to, and that there is room.

    Raises:
        EnvironmentFault: there is not, or the hub does not give them; it may have been asked long ago what it has.
    """
    missing = [file for file in repo.files if file.name in set(names) and kept_file(repo, file.name) is None]
    count = sum(file.size for file in missing)
    if missing:
        folder, where, what = hub_cache(), endpoint(), f"{repo.kind} {repo.id}"
        with transfer(what, repo.kind, where, folder):
            folder.mkdir(parents=True, exist_ok=True)
        if count > shutil.disk_usage(folder).free:
            raise no_room(what, folder, count)
        first: Any = {"filename": missing[0].name, "repo_type": repo.kind, "revision": repo.commit, "endpoint": where}
        within(lambda hub: hub.get_hf_file_metadata(hub.hf_hub_url(repo.id, **first)), what, repo.kind, where)
        files = "1 file" if len(missing) == 1 else f"{len(missing)} files"
        tell(f"fetching {files} ({size_text(count)}) of the {what} from {where}, kept in {folder}")


def fetch(repo: HubRepo, name: str) -> Path:
    """A file of the repository, fetched where it is not here yet and then checked against the hash that the hub states.

    Raises:
        EnvironmentFault: it cannot be fetched, or is not what it should be.
    """
    from huggingface_hub import hf_hub_download

    if (there := kept_file(repo, name)) is not None:
        return there
    what = f"{repo.kind} {repo.id}"
    if offline():
        raise Unreachable(f"{name} of the {what} is not here, and {_OFFLINE}", way_out(repo.kind), _OFFLINE)
    for left in range(_TRIES - 1, -1, -1):
        try:
            with transfer(f"file {name} of the {what}", repo.kind, endpoint(), hub_cache()):
                path = hf_hub_download(
                    repo.id, name, repo_type=repo.kind, revision=repo.commit, cache_dir=hub_cache(),
                    endpoint=endpoint(), etag_timeout=_patience(REACH_S), tqdm_class=progress_bar(),
                )  # fmt: skip
            break
        except EnvironmentFault as fault:
            if not left or (cause := fault.__context__) is None or not (why := unreached(cause, endpoint())):
                raise
            tell(f"{name}: {why}; trying again")
    wanted = next((file.sha256 for file in repo.files if file.name == name), None)
    with open(path, "rb") as file:
        if wanted and hashlib.file_digest(file, "sha256").hexdigest() != wanted:
            Path(path).resolve().unlink(missing_ok=True)
            Path(path).unlink(missing_ok=True)
            why = f"{name} of the {what} came with another SHA-256 than the hub states"
            raise EnvironmentFault(why, hint="it is removed: the same command fetches it again")
    return Path(path)


def progress_bar() -> Any:
    """tqdm's bar on a terminal, nothing elsewhere or where rich draws bars of its own."""
    from tqdm import tqdm

    class TransferBar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)
            options["disable"] = type(sys.stderr).__name__ == "FileProxy" or not sys.stderr.isatty()
            super().__init__(*args, **options)

    return TransferBar


@contextlib.contextmanager
def transfer(what: str, kind: Kind, where: str, folder: Path) -> Iterator[None]:
    """Around a transfer from `where` to `folder`: whatever ends it is told as one error that says how to go on."""
    try:
        yield
    except Exception as error:
        fault = _fault(error, what, kind, where, folder)
        more = "; the same command goes on with what is missing" if isinstance(fault, EnvironmentFault) else ""
        raise type(fault)(fault.what, hint=f"{fault.hint}{more}") from None


def tell(text: str) -> None:
    """A line on stderr: what is fetched is said before it is."""
    print(no_logins(text), file=sys.stderr, flush=True)
