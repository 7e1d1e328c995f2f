"""A tox plugin: the runner `shared`, whose environments may have one folder.

tox recreates an environment whose folder belongs to another name. Environments of this runner leave the name out: the first
installs for all that have the same folder and the same requirements.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from filelock import FileLock
from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.info import Info
from tox.tox_env.python.virtual_env.runner import VirtualEnvRunner
from tox.tox_env.register import ToxEnvRegister


class SharedInfo(Info):
    """What tox stores of a folder, with the folder's name in place of the environment's."""

    @contextmanager
    def compare(self, value: Any, section: str, sub_section: str | None = None) -> Generator[tuple[bool, Any]]:
        if section == ToxEnv.__name__:
            value = {**value, "name": self._path.parent.name}
        with super().compare(value, section, sub_section) as result:
            yield result


class Shared(VirtualEnvRunner):
    """Environments of one folder."""

    @staticmethod
    def id() -> str:
        return "shared"

    @property
    def cache(self) -> Info:
        return SharedInfo(self.env_dir)

    def setup(self) -> None:
        with FileLock(self.env_dir.with_suffix(".lock")):  # of two at the same time, the second waits
            super().setup()


@impl
def tox_register_tox_env(register: ToxEnvRegister) -> None:
    register.add_run_env(Shared)
