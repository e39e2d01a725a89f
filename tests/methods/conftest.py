from tests.sandbox.conftest import judge, sandbox

__all__ = ["judge", "sandbox"]
