"""Which environment a process of ours gets: a rank, the arena, a vLLM engine, a sandboxed program.

What happens to lie in the shell shall change neither a result nor a start: the variables of other launchers, of thread
pools and of libraries are set aside, and the ones that a process needs are given. `run.json` names both.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from codea1_cli.errors import EnvironmentFault, UserError, command

SYSTEM = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)

KEEP = "CODEA1_ENV_KEEP"
"""Names that are passed on all the same, separated by commas."""

# The place of a process in somebody else's world: torchrun, accelerate, DeepSpeed, Kubeflow, srun, mpirun, jsrun, flux.
_PLACES = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_NAME", "ROLE_WORLD_SIZE", "CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE", "NNODES", "NUM_NODES", "NPROC_PER_NODE",
}  # fmt: skip
_LAUNCHERS = (
    "MASTER_", "TORCHELASTIC_", "PET_", "ACCELERATE_", "FSDP_", "DEEPSPEED_", "MEGATRON_LM_", "PARALLELISM_CONFIG_",
    "SLURM_", "PMI_", "PMI2_", "PMIX_", "OMPI_", "MPI_", "I_MPI_", "MV2_", "MPIEXEC_", "HYDRA_", "PALS_", "JSM_",
    "FLUX_",
)  # fmt: skip
# What changes how a library computes, or which library does. Where it keeps its files is the user's to say.
_LIBRARIES = (
    "VLLM_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "USE_TORCH", "USE_TF", "USE_FLAX", "USE_JAX", "TRITON_",
    "PYTORCH_TUNABLEOP_", "ATEN_", "ONEDNN_", "DNNL_", "NPY_", "CUDNN_", "CUBLASLT_",
)  # fmt: skip
_SETTINGS = {
    "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "HF_DEACTIVATE_ASYNC_LOAD", "HF_ENABLE_PARALLEL_LOADING",
    "USE_HUB_KERNELS", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
}  # fmt: skip
_FILES = ("_HOME", "_ROOT", "_CACHE", "_CACHE_DIR", "_PATH", "_DIR")
_THREADS = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "VECLIB_")
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

# Python reads these when it starts. An empty value is as good as none.
PYTHON = {
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": "utf-8:backslashreplace",
    "PYTHONWARNINGS": "",
    "PYTHONOPTIMIZE": "",
    "PYTHONINSPECT": "",
    "LC_ALL": "C.UTF-8",
}

VLLM = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in its caller's process, which has used CUDA: a fork could not
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # nvcc compiles its kernels at their first use, for over a minute
}
"""An engine of one GPU, in the process that asks for it."""
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Ranks of one machine talk over loopback, whatever its other interfaces are called."""

_set_aside: set[str] = set()
_looking: list[bool] = []


def foreign(environment: Mapping[str, str], threads: bool = False) -> list[str]:
    """The variables that no process of ours gets; with `threads` also those of thread pools, which a rank is given."""
    kept = {name.strip() for name in environment.get(KEEP, "").split(",")}
    return sorted(name for name in environment if _foreign(name, threads) and name not in kept)


def _foreign(name: str, threads: bool) -> bool:
    if name in _PLACES or name in _SETTINGS or name.startswith(_LAUNCHERS):
        return True
    if name.startswith(_LIBRARIES):
        return not name.endswith(_FILES) and not name.startswith("TORCH_NCCL_")
    return threads and name.startswith(_THREADS)


def settle(threads: bool = False) -> list[str]:
    """Sets aside what is foreign in this process and all that it starts; returns what it was, once and for all."""
    names = foreign(os.environ, threads)
    for name in names:
        del os.environ[name]
    _set_aside.update(names)
    return sorted(_set_aside)


def rank_environment(
    rank: int, ranks: int, *, gpu: str | None, threads: int, master: tuple[str, int], vllm: bool, alone: bool, run: Path
) -> dict[str, str]:
    """What a rank is given.

    Args:
        gpu: its physical id; None on the CPU.
        master: where rank 0 is met, host and port.
        alone: all ranks are on this machine.
        run: the run's folder, for files that libraries would keep below a home folder that cannot be written.
    """
    values = {
        **PYTHON,
        **(VLLM if vllm else {}),
        **(LOOPBACK if alone else {}),
        **caches(run),
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "CUDA_VISIBLE_DEVICES": gpu or "",
        **dict.fromkeys(_POOLS, str(threads)),
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait busily would take the other policy's core
    }
    if gpu is None:
        # accelerate would number the CPU as it numbers GPUs, and torch restores no checkpoint to "cpu:0".
        values["ACCELERATE_TORCH_DEVICE"] = "cpu"
    elif not vllm:  # a cache that grows with every token leaves holes behind, until they fill the GPU
        values["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    if ranks > 1 or vllm:
        # Each rank sees one GPU, so its local rank is 0 whatever its place in the world.
        values |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": master[0],
            "MASTER_PORT": str(master[1]),
        }
        if alone:  # torch's own store would listen on every interface; rank 0 opens one that does not
            values |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    return values


def program_environment(hash_seed: int) -> dict[str, str]:
    """All that a sandboxed program finds, whatever lies in the shell."""
    return {
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        "LD_BIND_NOW": "1",  # else every child looks its functions up again
        "JE_ARROW_MALLOC_CONF": "background_thread:false",  # else pyarrow, and so pandas, starts a thread
        "MALLOC_ARENA_MAX": "2",  # every arena reserves address space, which RLIMIT_AS counts
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        **dict.fromkeys(_POOLS, "1"),
    }


_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|AUTH")


def without_secrets(text: str) -> str:
    """What may be kept of a text: neither the values of variables that are named as secrets are, nor a user's name and
    password in an address."""
    for name, value in os.environ.items():
        if _SECRET.search(name.upper()) and len(value) >= 8:
            text = text.replace(value, "***")
    return re.sub(r"//[^/@\s]+@", "//", text)


def installed_version(package: str) -> str | None:
    """The version of a package, None where it is not installed; nothing is imported."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def demand_linux(what: str, hint: str) -> None:
    """Raises EnvironmentFault with this hint on another system: `what` asks the kernel for what only Linux has."""
    if SYSTEM != "Linux":
        hint = f"{hint}; else a Linux container does, as docs/install.md says"
        raise EnvironmentFault(f"{what} needs Linux, and this is {SYSTEM}", hint=hint)


def cores() -> int:
    """The CPU cores that this process may use: taskset, a container's cpuset or a batch system may leave it fewer than
    the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def home() -> Path:
    """The home folder; a place that does not exist for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def cache_folder() -> Path:
    """Where codea1 keeps what it can make or fetch again: CODEA1_CACHE, else its folder among the user's caches."""
    root = os.environ.get("CODEA1_CACHE")
    return Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "codea1"


def home_fault() -> str | None:
    """Why the home folder cannot be written; None where it can."""
    return None if os.access(home(), os.W_OK | os.X_OK) else f"HOME={home()} cannot be written"


HUB, GITHUB = "HF_ENDPOINT", "CODEA1_GITHUB"
"""The variables that name where files are fetched from, in place of the public hub and of GitHub's raw files."""


def endpoint() -> str:
    """The address of the Hugging Face hub."""
    return (os.environ.get(HUB) or "https://huggingface.co").rstrip("/")


def proxy_to(url: str) -> str | None:
    """HOST:PORT of the proxy that HTTPS_PROXY, NO_PROXY and their like put before a URL; None where there is none."""
    from urllib.request import getproxies, proxy_bypass

    there, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(there.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(there.hostname or ""):
        return None
    at = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    return f"{at.hostname}:{at.port or {'https': 443, 'http': 80}.get(at.scheme, 1080)}"


def connect(where: str) -> None:
    """Asks for a connection, which ends at once.

    Raises:
        ConnectionError: nobody takes it, be it a server or the proxy before it.
        UserError: that is no address, as the variable may have it that names it.
    """
    if urlsplit(where).scheme not in ("http", "https") or not urlsplit(where).hostname:
        named = next((name for name in (HUB, GITHUB) if (os.environ.get(name) or "").rstrip("/") == where), "")
        raise UserError(f"{named}{named and '='}{where} is no address", hint="one begins with http:// or https://")
    there = urlsplit(f"//{proxy_to(where) or urlsplit(where).netloc}")
    try:
        socket.create_connection((there.hostname, there.port or (80 if where.startswith("http:") else 443))).close()
    except OSError as error:
        raise ConnectionError(error.strerror) from None


def offline() -> bool:
    """Whether nobody of the network is to be asked."""
    return bool(_looking) or (os.environ.get("HF_HUB_OFFLINE") or "").upper() in {"1", "ON", "YES", "TRUE"}


def way_out(kind: str) -> str:
    """The hint of a model or dataset that cannot be fetched, or of what has `kind` for a way out of its own: what needs
    no network comes first."""
    own = {
        "model": "a folder with the model, or builtin:tiny",
        "dataset": f"a file or folder that is here; `{command('train', '--recipe', 'tiny')}` needs none",
    }
    online = "unset HF_HUB_OFFLINE" if offline() else f"{HUB} names a mirror, HTTPS_PROXY a proxy"
    return f"without a network: {own.get(kind, kind)}; with one: {online}"


@contextlib.contextmanager
def nobody_asked() -> Iterator[None]:
    """Inside the block nothing is fetched, as a plan and a dry run promise."""
    _looking.append(True)
    try:
        yield
    finally:
        _looking.pop()


def hub_cache() -> Path:
    """Where huggingface_hub keeps files; a folder among the temporary ones where no home can be written."""
    for name, below in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")):
        if root := os.environ.get(name):
            return Path(root).expanduser() / below
    if home_fault():
        return Path(tempfile.gettempdir()) / f"codea1-{os.getuid()}" / "hub"
    return home() / ".cache" / "huggingface" / "hub"


def caches(folder: Path) -> dict[str, str]:
    """Places for the files that libraries keep below the home folder, where that cannot be written."""
    if home_fault() is None:
        return {}
    names = (
        "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH", "VLLM_CACHE_ROOT",
        "VLLM_CONFIG_ROOT", "FLASHINFER_WORKSPACE_BASE", "MPLCONFIGDIR",
    )  # fmt: skip
    return {name: str(folder / ".cache" / name.lower()) for name in names if name not in os.environ}


def settle_umask() -> None:
    """From now on the account can read and write the files that this process and its children make, whatever the umask
    was, and accounts outside its group cannot change them."""
    mask = os.umask(0o022)
    os.umask(mask & 0o077 | 0o002)
