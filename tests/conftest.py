import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.hub import Hub, environment, serving

# pytest-xdist tells its workers the width of the terminal; commands under test write to pipes, which have none.
os.environ.pop("COLUMNS", None)
# A user's Python buffers what it writes.
os.environ.pop("PYTHONUNBUFFERED", None)
# Two workers on two cores: torch's threads would wait for each other, busily.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing is asked of the network, and what this machine's caches and folders hold changes no test.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CODEA1_CACHE"] = os.path.join(tempfile.gettempdir(), f"codea1-tests-{os.getuid()}")
os.environ.pop("CODEA1_BENCHMARKS", None)
# How long an example takes says how busy the machine is, and nothing of the property.
settings.register_profile("codea1", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("codea1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The end-to-end runs first: they are the longest."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real problems and cases; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("CODEA1_SHARED") or Path(__file__).parents[1] / ".." / "shared").resolve()
    if not (folder / "data").is_dir():
        pytest.skip(f"no data under {folder}: set CODEA1_SHARED")
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A stand-in of the hub, empty, that this process and those it starts meet; their caches are empty too."""
    from huggingface_hub import close_session, constants

    import codea1_cli.hub

    with serving() as (stand_in, address):
        for name, value in environment(address, tmp_path).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(codea1_cli.hub, "_unreachable", {})
        monkeypatch.setattr(codea1_cli.hub, "_AGAIN_S", float("inf"))  # however long a busy machine takes
        close_session()
        yield stand_in
    close_session()


@pytest.fixture(autouse=True)
def _interrupts_leave_the_test_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is interrupted ends its process within seconds; commands under test share one process."""
    from codea1_cli.engine import shutdown

    monkeypatch.setattr(shutdown, "_since", None)
    monkeypatch.setattr(shutdown, "_end_later", lambda: None)
