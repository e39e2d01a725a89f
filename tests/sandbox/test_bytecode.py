"""What programs import is compiled once, outside of the jail, whoever installed it without bytecode."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codea1_cli.sandbox.base import Limits, ProgramRun, SandboxEnvironment, UnitModule
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.local.programs import Packages

LIMITS = Limits(time_s=10.0)
TAG = sys.implementation.cache_tag


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site-packages of an interpreter, with a package that runs where it may write, and what it requires."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = tmp_path.glob("env/lib/python3*/site-packages")
    install(site, "red-paint", ["Brush_Maker>=1; python_version > '3'", "unwanted; extra == 'dev'", "absent"], {
        "red/__init__.py": "try: open(__file__ + '.ran', 'w')\nexcept OSError: pass\nfrom brush import SIZE",
        "red/deep/rare.py": "", "red/deep/broken.py": "def", "red/tests/test_red.py": "",
    })  # fmt: skip
    install(site, "brush.maker", ["red-paint", "hair"], {"brush.py": "SIZE = 3"})
    install(site, "hair", [], {"hair/__init__.py": ""})
    install(site, "unwanted", [], {"unwanted.py": ""})
    return site


def install(site: Path, name: str, requires: list[str], files: dict[str, str]) -> None:
    about = f"{name.replace('-', '_')}-1.dist-info"
    lines = [f"Requires-Dist: {one}\n" for one in requires]
    files |= {f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{''.join(lines)}"}
    files |= {f"{about}/RECORD": "".join(f"{path},,\n" for path in files)}
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)


def compiled(site: Path) -> list[str]:
    return sorted(path.relative_to(site).as_posix() for path in site.rglob(f"*.{TAG}.pyc"))


ALL = [
    f"__pycache__/brush.{TAG}.pyc", f"hair/__pycache__/__init__.{TAG}.pyc", f"red/__pycache__/__init__.{TAG}.pyc",
    f"red/deep/__pycache__/rare.{TAG}.pyc",
]  # fmt: skip
PROGRAM = "import red.deep.rare, os\ndef f(): return [red.SIZE, os.path.exists(red.__cached__)]"


def sandbox(site: Path, **more: object) -> LocalSandbox:
    return LocalSandbox(1, python=str(site.parents[2] / "bin" / "python"), warm=(), **more)  # type: ignore[arg-type]


def answer(run: ProgramRun) -> object:
    (one,) = run.answers
    return one.value.data if one.value else one


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests beside these compile too, and hold the lock."""
    monkeypatch.setenv("CODEA1_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The packages that are looked at."""
    names: list[str] = []

    def look(self: Packages, name: str, deadline: float) -> bool:
        names.append(name)
        return compile_it(self, name, deadline)

    compile_it = Packages._compile
    monkeypatch.setattr(Packages, "_compile", look)
    return names


def test_a_package_is_compiled_with_what_it_requires_before_a_program_imports_it(
    site: Path, looked_at: list[str]
) -> None:
    with sandbox(site) as box:
        assert answer(box.run(PROGRAM, "f", ["f()"], LIMITS)) == [3, True]
        assert compiled(site) == ALL
        assert not list(site.rglob("*.ran"))
        assert answer(box.run(PROGRAM, "f", ["f()"], LIMITS)) == [3, True]
    assert looked_at == ["red"]


def test_a_unittest_module_s_packages_are_compiled_too(site: Path) -> None:
    tests = "import unittest, brush\nclass TestCases(unittest.TestCase):\n    def test_it(self): self.assertEqual(brush.SIZE, 3)"
    with sandbox(site, environment=SandboxEnvironment(unit=True)) as box:
        assert box.run_unit(UnitModule("import hair", tests, ("test_it",)), LIMITS).first_fault is None
    assert compiled(site) == ALL  # each requires the other


@pytest.mark.parametrize(
    "program",
    [
        "import nothing_at_all", "import os.red, math", "from . import red", "from .. import red", "import red.", "red = 'import red'",
        "import codea1_cli", "__import__('red')", "import site_packages, _distutils_hack",
    ],
)  # fmt: skip
def test_a_name_that_is_no_installed_package_s_costs_nothing(program: str, site: Path, looked_at: list[str]) -> None:
    packages = Packages(sys.executable, [str(site), str(site.parent), "/nonexistent/site-packages"], TAG)
    packages.prepare(program)
    assert (looked_at, compiled(site)) == ([], [])


def test_where_nothing_can_be_written_the_program_does_without(
    site: Path, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with sandbox(site) as box:
        monkeypatch.setattr(os, "access", lambda *_: False)
        monkeypatch.setattr("codea1_cli.sandbox.local.programs.subprocess.run", None)
        assert [answer(box.run(PROGRAM, "f", ["f()"], LIMITS)) for _ in range(2)] == [[3, False]] * 2
    assert (looked_at, compiled(site)) == (["red"], [])


def test_what_takes_too_long_is_left_to_the_programs(
    site: Path, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codea1_cli.sandbox.local.programs._COMPILE_S", 0.0)
    with sandbox(site) as box:
        assert [answer(box.run(PROGRAM, "f", ["f()"], LIMITS)) for _ in range(2)] == [[3, False]] * 2
    assert looked_at == ["red"]


def test_bytecode_of_another_source_is_made_anew_and_other_bytecode_is_left(site: Path) -> None:
    def prepare() -> list[int]:
        Packages(sys.executable, [str(site)], TAG).prepare("import red")
        return [(site / name).stat().st_mtime_ns for name in ALL]

    (site / "red" / "deep" / "broken.py").unlink()  # it would be tried again
    first = prepare()
    assert prepare() == first
    os.utime(site / "hair" / "__init__.py", (1, 1))
    assert prepare() == first  # only red is looked at
    os.utime(site / "red" / "__init__.py", (1, 1))
    assert [then == now for then, now in zip(first, prepare(), strict=True)] == [True, False, False, True]


RACE = """
import subprocess, sys
from codea1_cli.sandbox.local import programs

def locked(file):
    print("asks", flush=True)
    return ask(file)

def compile_all(*words, **more):
    print("compiles", flush=True)
    return run(*words, **more)

ask, programs._locked = programs._locked, locked
run, subprocess.run = subprocess.run, compile_all
programs.Packages(sys.executable, [sys.argv[1]], sys.implementation.cache_tag).prepare("import hair")
"""


def test_what_cannot_be_read_of_a_distribution_hinders_no_other(site: Path) -> None:
    odd = site / "odd-1.dist-info"
    odd.mkdir()
    (odd / "METADATA").write_bytes(b"Name: odd\nRequires-Dist: \xff\xfe\n")
    (odd / "RECORD").write_bytes(b"\xff,,\n")
    Packages(sys.executable, [str(site)], TAG).prepare("import red")
    assert compiled(site) == ALL


def test_whoever_waited_in_vain_asks_again(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = Packages(sys.executable, [str(site)], TAG)
    with monkeypatch.context() as patch:
        patch.setattr("codea1_cli.sandbox.local.programs._locked", lambda _: False)
        patch.setattr("codea1_cli.sandbox.local.programs._COMPILE_S", 0.1)
        packages.prepare("import red")
        assert compiled(site) == []
    packages.prepare("import red")
    assert compiled(site) == ALL


def test_two_processes_compile_a_package_once(site: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    lock = os.open(tmp_path / "cache" / "bytecode.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    both = [
        subprocess.Popen([sys.executable, "-c", RACE, str(site)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [one.stdout.readline() for one in both if one.stdout] == ["asks\n"] * 2
    os.close(lock)
    said = "".join(one.communicate()[0] for one in both)
    assert said.count("compiles") == 1
    assert compiled(site) == [f"hair/__pycache__/__init__.{TAG}.pyc"]
