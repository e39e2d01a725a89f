"""A stand-in of the Hugging Face hub and of GitHub's raw files, which can be told to fail in each way; and of a package
index.

Its repositories are dictionaries of file names and bytes. Any revision is the commit it names, `main` is COMMIT. Models are
taken from who has its token, whose account is `me`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.listening import listening

COMMIT = "c0ffee" + "0" * 34
_HEX = re.compile(r"[0-9a-f]{40}")
_API = re.compile(r"/api/(datasets|models)/([^/]+/[^/]+)(?:/revision/([^/]+))?")
_FILE = re.compile(r"/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_WRITE = re.compile(
    r"/api/models/([^/]+/[^/]+)/(preupload|tree|commit)/main|/([^/]+/[^/]+)\.git/info/lfs/(objects)/batch"
)
_RAW = re.compile(r"/raw/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)")


class Hub:
    """`files`: by `datasets/OWNER/NAME`, `models/OWNER/NAME` or `raw/OWNER/NAME`. `configs`: of a dataset's card.

    `fault` is what answers suffer from: `hang` (none comes), `gated`, `private`, an HTTP status, `cut` (the next `left`
    files break off in their middle), `forged` (files are not what their hash says). `asked` are the requests, `sent` the bytes of
    files by name. `refuse` has an HTTP status by a part of the path that gets it, `private` the repositories that are.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.configs: dict[str, list[dict[str, Any]]] = {}
        self.fault, self.left = "", 0
        self.asked: list[str] = []
        self.sent: dict[str, int] = {}
        self.token: str | None = None
        self.refuse: dict[str, int] = {}
        self.private: set[str] = set()
        self.stored: dict[str, bytes] = {}

    def add(self, repo: str, files: Mapping[str, bytes], configs: Sequence[dict[str, Any]] = ()) -> None:
        """A repository; `repo` begins with `datasets/`, `models/` or `raw/`."""
        self.files[repo] = dict(files)
        self.configs[repo] = list(configs)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def do_GET(self) -> None:
        self._answer(head=False)

    def do_POST(self) -> None:
        self._answer(head=False, body=self._body())

    def do_PUT(self) -> None:
        if self.hub.fault == "cut" and self.hub.left > 0:
            self.hub.left -= 1
            self.rfile.read(1)
            self.close_connection = True
            return
        body = self._body()
        self.hub.stored[hashlib.sha256(body).hexdigest()] = body
        self._answer(head=False, body=body)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, head: bool, body: bytes = b"") -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.asked.append(f"{self.command} {path}")
        if hub.fault == "hang":
            time.sleep(30)
            return
        if hub.fault.isdecimal():
            self._send(int(hub.fault), b"{}")
        elif status := next((status for part, status in hub.refuse.items() if part in path), None):
            self._send(status, b"{}", {"X-Error-Message": "because it is so"})
        elif path == "/api/whoami-v2" or self.command in ("POST", "PUT") or _WRITE.fullmatch(path):
            self._write(path, body)
        elif api := _API.fullmatch(path):
            self._info(f"{api[1]}/{api[2]}", api[2], api[3] or "main")
        elif raw := _RAW.fullmatch(path):
            self._file(f"raw/{raw[1]}", raw[3], raw[2], head)
        elif file := _FILE.fullmatch(path):
            self._file(f"{file[1] or 'models'}/{file[2]}", file[4], file[3], head)
        else:
            self._send(404, b"")

    def _refused(self, repo: str) -> bool:
        hub = self.hub
        allowed = hub.token is not None and self.headers.get("authorization") == f"Bearer {hub.token}"
        if hub.fault in ("gated", "private") and not allowed:
            code = "GatedRepo" if hub.fault == "gated" else "RepoNotFound"
            self._send(403 if hub.fault == "gated" else 401, b"{}", {"X-Error-Code": code})
            return True
        if repo not in hub.files:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return True
        return False

    def _info(self, repo: str, name: str, revision: str) -> None:
        if self._refused(repo):
            return
        if revision != "main" and not _HEX.fullmatch(revision):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [
            {"rfilename": file, "size": len(content), "blobId": "0" * 40, "lfs": {
                "sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}}
            for file, content in self.hub.files[repo].items()
        ]  # fmt: skip
        info = {"id": name, "sha": COMMIT if revision == "main" else revision, "siblings": siblings, "private": repo in self.hub.private,
                "tags": [], "downloads": 0, "likes": 0, "cardData": {"configs": self.hub.configs[repo]}}  # fmt: skip
        self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    def _write(self, path: str, body: bytes) -> None:
        """All that only an account may: what a push asks for, in its order."""
        hub, found = self.hub, _WRITE.fullmatch(path)
        if self.headers.get("authorization") != f"Bearer {hub.token}" and not path.startswith("/lfs/"):
            self._send(401, b"{}")
        elif path == "/api/whoami-v2":
            self._json({"name": "me", "type": "user"})
        elif path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization'] or 'me'}/{asked['name']}"
            if not name.startswith("me/"):
                self._send(403, b"{}", {"X-Error-Message": "not yours"})
                return
            hub.add(f"models/{name}", {".gitattributes": b"*.safetensors filter=lfs"})
            hub.private |= {f"models/{name}"} if asked.get("visibility") == "private" else set()
            self._json({"url": f"http://{self.headers['host']}/{name}"})
        elif path == "/api/validate-yaml":
            wrong = faults_of_card(json.loads(body)["content"])
            self._json({"errors": [{"message": one} for one in wrong], "warnings": []}, 400 if wrong else 200)
        elif path.startswith("/lfs/"):
            self._json({})
        elif found is None or f"models/{found[1] or found[3]}" not in hub.files:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif found[2] == "preupload":
            files = [{"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular",
                      "shouldIgnore": False, "oid": None} for one in json.loads(body)["files"]]  # fmt: skip
            self._json({"files": files})
        elif found[4]:
            href = f"http://{self.headers['host']}/lfs/"
            objects = [
                {**one, "actions": {"upload": {"href": href + one["oid"]}}} for one in json.loads(body)["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})
        elif found[2] == "tree":
            there = hub.files[f"models/{found[1]}"].items()
            self._json([{"type": "file", "path": name, "size": len(held), "oid": "0" * 40} for name, held in there])
        else:
            self._commit(found[1], [json.loads(line) for line in body.splitlines()])

    def _commit(self, id: str, lines: list[dict[str, Any]]) -> None:
        files = self.hub.files[f"models/{id}"]
        for line in lines:
            value = line["value"]
            if line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.stored[value["oid"]]
        self._json({"commitUrl": f"http://{self.headers['host']}/{id}/commit/{COMMIT}", "commitOid": COMMIT})

    def _json(self, content: Any, status: int = 200) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _file(self, repo: str, name: str, revision: str, head: bool) -> None:
        hub = self.hub
        if not repo.startswith("raw/") and self._refused(repo):
            return
        content = hub.files.get(repo, {}).get(name)
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        etag = hashlib.sha256(content).hexdigest()
        headers = {"X-Repo-Commit": COMMIT if revision == "main" else revision, "ETag": f'"{etag}"',
                   "Accept-Ranges": "bytes", "X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{etag}"'}  # fmt: skip
        if hub.fault == "forged":
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = int((re.match(r"bytes=(\d+)-", self.headers.get("range", "")) or (0, 0))[1])
        body = content[start:]
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        cut = hub.fault == "cut" and hub.left > 0 and not head
        if cut:
            hub.left -= 1
        if not head:  # before it is sent: who has read it may look
            hub.sent[name] = hub.sent.get(name, 0) + (len(body) // 2 if cut else len(body))
        self._send(206 if start else 200, body, headers, head=head, stop=len(body) // 2 if cut else None)

    def _send(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        head: bool = False,
        stop: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body[:stop])
            if stop is not None:
                self.close_connection = True


def faults_of_card(text: str) -> list[str]:
    """What the hub's check of a model card's metadata finds."""
    from huggingface_hub import ModelCard

    try:
        data = ModelCard(text).data
    except (ValueError, TypeError) as error:
        return [str(error)]
    ids = {"base_model": [data.base_model] if data.base_model else [], "datasets": data.datasets or []}
    wrong = [f'"{key}" with value "{one}" is not valid' for key, named in ids.items() for one in named
             if not re.fullmatch(r"[\w.-]+/[\w.-]+", one)]  # fmt: skip
    return wrong + [f"{key} is missing" for key in ("library_name", "pipeline_tag", "tags") if not data.get(key)]


@contextmanager
def serving() -> Iterator[tuple[Hub, str]]:
    """A stand-in and its address."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    with listening(server):
        yield hub, f"http://127.0.0.1:{server.server_port}"


def environment(address: str, folder: Path) -> dict[str, str]:
    """What a command needs in order to meet the stand-in, with all its caches below `folder`."""
    return {"HF_ENDPOINT": address, "HF_HOME": str(folder / "hf"), "CODEA1_CACHE": str(folder / "cache"),
            "CODEA1_GITHUB": f"{address}/raw", "HF_HUB_OFFLINE": "", "HF_HUB_DISABLE_TELEMETRY": "1"}  # fmt: skip


PATIENT = {"HF_HUB_ETAG_TIMEOUT": "120"}
"""Of a drill that is about other things than a hub which does not answer: a busy machine may take its time."""


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a parquet file has them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), sink)
    return sink.getvalue()


# -- what the hub publishes, from the shared data ------------------------------------------------------------------------
def publish_all(hub: Hub, shared: Path, limit: int | None = None, monkeypatch: Any = None) -> None:
    """Every data set that codea1 knows, in the form that the hub has it, benchmarks with their first `limit` tasks;
    KodCode's rows are those of its demo."""
    from codea1_cli.data.sources.kodcode import DATASET_KODCODE, DATASET_MBPP, MBPP_ROWS

    publish_benchmarks(hub, shared, limit, monkeypatch)
    raw = shared / "data" / "raw"
    mbpp = [json.loads(line) for line in (raw / "mbpp.jsonl").read_text().splitlines()]
    bounds = {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974)}
    parts = {split: [row for row in mbpp if low <= row["task_id"] <= high] for split, (low, high) in bounds.items()}
    assert {split: len(rows) for split, rows in parts.items()} == MBPP_ROWS
    files = {f"full/{split}-00000-of-00001.parquet": parquet(rows) for split, rows in parts.items()}
    entries = [{"split": split, "path": f"full/{split}-*"} for split in parts]
    hub.add(f"datasets/{DATASET_MBPP}", files, [{"config_name": "full", "data_files": entries}])
    demo = [json.loads(line) for line in (raw / "kodcode_demo.jsonl").read_text().splitlines()]
    demo = [{**row, "test": row.pop("test_code"), "test_info": [row["test_info"]] if isinstance(row.get("test_info"), dict)
             else row.get("test_info")} for row in demo]  # fmt: skip
    shards = {f"data/train-{number:05d}-of-00003.parquet": parquet(demo[number::3]) for number in range(3)}
    shards["data/use_with_caution-00000-of-00001.parquet"] = parquet(demo[:1])
    configs = [{"config_name": "default", "data_files": [
        {"split": split, "path": f"data/{split}-*"} for split in ("train", "use_with_caution")]}]  # fmt: skip
    hub.add(f"datasets/{DATASET_KODCODE}", shards, configs)


def publish_benchmarks(hub: Hub, shared: Path, limit: int | None = None, monkeypatch: Any = None) -> None:
    """HumanEval+, MBPP+, BigCodeBench and UnLeakedTestBench, as their authors publish them.

    Only 200 functions of the last are here: a process that shall take them for the whole file gives its monkeypatch,
    for others it is not the published one.
    """
    from codea1_cli.evals.registry import ROWS

    bench = shared / "data" / "bench"

    def put(name: str, subset: str, content: bytes) -> None:
        there = ROWS[name].published[subset]
        hub.add(f"{'raw' if there.blob else 'datasets'}/{there.repo}", {there.file: content})

    put("humaneval", "full", parquet([on_the_hub(row) for row in lines(bench / "humaneval_plus.jsonl.gz")[:limit]]))
    put("mbpp", "full", parquet([on_the_hub(row) for row in lines(bench / "mbpp_plus.jsonl.gz")[:limit]]))
    tasks = lines(bench / "bigcodebench-v0.1.4.jsonl.gz")
    hard = [row for row in tasks if row["hard"]]
    for subset, rows in (("full", tasks[:limit]), ("hard", hard[:limit])):
        put("bigcodebench", subset, parquet([{key: row[key] for key in row if key != "hard"} for row in rows]))
    functions = json.loads((bench / "ult_lite.json").read_text())
    content = "".join(json.dumps(row) + "\n" for row in functions[:limit]).encode()
    put("ult", "full", content)
    if monkeypatch is not None:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        there = replace(ROWS["ult"].published["full"], blob=blob)
        monkeypatch.setitem(ROWS, "ult", replace(ROWS["ult"], published={"full": there}))


def lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a gzipped file of JSON lines."""
    with gzip.open(file, "rt") as opened:
        return [json.loads(line) for line in opened]


def on_the_hub(row: Mapping[str, Any], most: int = 4) -> dict[str, Any]:
    """A row of EvalPlus' release in the form of its data sets on the hub; only `most` of its plus inputs."""
    from codea1_cli.evals.evalplus.oracle import arguments_of

    task_id, entry = row["task_id"], row["entry_point"]
    base, plus = (arguments_of(task_id, row[f"{part}_input"] or []) for part in ("base", "plus"))
    program = (
        f"inputs = {[*base, *plus[:most]]!r}\nresults = []\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n"
    )
    program += f"    assertion(CALLED(*inp), exp, {row['atol']})\n"
    if task_id.startswith("HumanEval/"):
        inside = "".join(f"    {line}\n" for line in program.replace("CALLED", "candidate").splitlines())
        return {"task_id": task_id, "prompt": row["prompt"], "canonical_solution": row["canonical_solution"],
                "entry_point": entry, "test": f"def check(candidate):\n{inside}"}  # fmt: skip
    text = row["prompt"].strip().strip('"').strip()
    question, _, _ = text.partition("\nassert ")
    return {"task_id": int(task_id.rpartition("/")[2]), "code": row["canonical_solution"].strip(), "prompt": question,
            "source_file": "", "test_imports": [], "test_list": [line for line in row["assertion"].split("\n") if line.startswith("assert ")],
            "test": program.replace("CALLED", entry)}  # fmt: skip


# -- a package index -----------------------------------------------------------------------------------------------------
def wheel(folder: Path, name: str, files: Mapping[str, str], version: str = "1.0") -> None:
    """Writes the smallest wheel that installers take, of a name as wheels have it."""
    about = f"{name}-{version}.dist-info"
    parts = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    parts[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*parts, f"{about}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in parts.items():
            archive.writestr(path, text)


def package_index(wheels: Path) -> dict[str, str]:
    """The variables with which uv and pip take a folder of wheels for the only index; what uv keeps of real ones is
    not looked at."""
    return {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(wheels), "UV_CACHE_DIR": str(wheels.with_name("uv-cache")),
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}  # fmt: skip


def publish_libraries(wheels: Path, requirements: Path) -> None:
    """A wheel of each library that is listed as NAME==VERSION, all empty but matplotlib's, whose fonts are looked for."""
    wheels.mkdir()
    for line in requirements.read_text().split():
        name, _, version = line.partition("==")
        files = {"matplotlib/__init__.py": "", "matplotlib/font_manager.py": ""} if name == "matplotlib" else {}
        wheel(wheels, re.sub(r"[-.]+", "_", name), files, version)
