"""Trackers by name, and MLflow through a stand-in of its client; the others are really run beside the runs."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from codea1_cli.errors import EnvironmentFault
from codea1_cli.trackers import TrackedRun, check_trackers, make_tracker, markdown


class Client:
    """As much of MlflowClient as is used; what MLflow would refuse is refused."""

    def __init__(self, uri):
        self.uri, self.metrics, self.params, self.texts, self.status, self.experiments = uri, [], {}, {}, "", {}

    def get_experiment_by_name(self, name):
        return self.experiments.get(name)

    def create_experiment(self, name, artifact_location=None):
        self.experiments[name] = SimpleNamespace(experiment_id="1", place=artifact_location)
        return "1"

    def create_run(self, experiment, run_name):
        self.name, self.status = run_name, "RUNNING"
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def update_run(self, id, status):
        self.status = status

    def get_run(self, id):
        return SimpleNamespace(data=SimpleNamespace(params=dict(self.params)))

    def log_batch(self, id, metrics=(), params=()):
        assert len(metrics) + len(params) <= 100
        assert not {key for key, _ in params} & self.params.keys()
        assert all(len(value) <= 6000 for _, value in params)
        assert not any("@" in name for name, *_ in metrics)
        self.metrics += metrics
        self.params |= dict(params)

    def log_text(self, id, text, file):
        self.texts[file] = text

    def set_terminated(self, id, status):
        self.status = status


@pytest.fixture
def client(monkeypatch):
    made = []

    def connect(uri):
        made[:] = made or [Client(uri)]
        return made[0]

    entities, tracking = ModuleType("mlflow.entities"), ModuleType("mlflow.tracking")
    entities.Metric, entities.Param = (lambda *values: values), (lambda *values: values)
    tracking.MlflowClient = connect
    modules = {"mlflow": ModuleType("mlflow"), "mlflow.entities": entities, "mlflow.tracking": tracking}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_mlflow_goes_on_in_its_run(client, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:hunter22@example.com")
    params = {f"recipe/{number}": number for number in range(150)} | {"recipe/long": "x" * 9000}
    config = {"recipe": {"seed": 1}, "run": {}}
    tracker = make_tracker("mlflow")
    opened = tracker.open(TrackedRun("first", tmp_path, tmp_path, config, params), None, None)
    assert opened == ("r1", "run r1 of experiment codea1 in https://example.com", True)
    tracker.log(3, 1.5, {f"eval/heldout/code/pass@{n}": n / 8 for n in range(1, 120)})
    tracker.table(3, [{"problem": "p", "code": "def f():\n    pass"}])
    tracker.close(True)
    (server,) = client
    assert server.status == "FAILED"
    assert len(server.metrics) == 119
    assert server.metrics[0] == ("eval/heldout/code/pass_1", 0.125, 1500, 3)
    assert server.texts["rollouts/step-000003.md"] == "**problem** p\n\n**code**\n\n    def f():\n        pass"
    again = make_tracker("mlflow")
    opened = again.open(
        TrackedRun("first", tmp_path, tmp_path, config, params | {"recipe/1": 2, "recipe/new": 3}), "r1", 2
    )
    assert not opened.new
    assert (server.status, server.params["recipe/1"], server.params["recipe/new"]) == ("RUNNING", "1", "3")


def test_without_an_address_mlflow_keeps_its_store_beside_the_runs(client, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    make_tracker("mlflow").open(TrackedRun("first", tmp_path / "first", tmp_path, {}, {}), None, None)
    assert client[0].uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert client[0].experiments["codea1"].place == str(tmp_path / "mlartifacts")


def test_what_is_not_installed_is_said_with_the_extra(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault) as raised:
        check_trackers(["wandb"])
    assert (raised.value.what, "`uv sync --extra wandb`" in raised.value.hint) == (
        "tracker wandb is not installed here",
        True,
    )
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mlflow").mkdir()  # as a library leaves one for its files: no package
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "mine.py").write_text("class Other:\n    pass\n")
    (tmp_path / "still.py").write_text("import time\n\ntime.sleep(600)\n")
    told = []
    check_trackers(["mlflow", "tensorboard", "nowhere.at:All", "mine:Gone", "mine:Other"], told.append)
    assert [line.partition(";")[0] for line in told] == [
        "tracker mlflow is not installed here: `uv sync --extra mlflow`, or `pip install 'codea1[mlflow]'`",
        "tracker nowhere.at:All does not load here: ModuleNotFoundError: No module named 'nowhere'"
        ": PYTHONPATH says where modules are looked for",
        "tracker mine:Gone does not load here: AttributeError: module 'mine' has no attribute 'Gone'"
        ": PYTHONPATH says where modules are looked for",
        "tracker mine:Other does not load here: TypeError: mine:Other is not a subclass of codea1_cli.trackers.Tracker"
        ": PYTHONPATH says where modules are looked for",
    ]
    monkeypatch.setattr("codea1_cli.trackers._MADE_S", 0.1)
    with pytest.raises(EnvironmentFault, match="still:Any does not load here: no answer within"):
        check_trackers(["still:Any"])


def test_texts_that_models_wrote_stay_text():
    shown = markdown([{"problem": "p", "reward": None, "code": "<script>\n# x", "suite": "*y*"}])
    assert shown == "**problem** p  **reward** None\n\n**code**\n\n    <script>\n    # x\n\n**suite**\n\n    *y*"
