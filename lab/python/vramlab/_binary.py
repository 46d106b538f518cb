"""Where pip put the program."""

import os
import shutil
import sys
import sysconfig
from typing import Iterator, Optional

from ._error import VramlabError

NAME = "vramlab"


def find() -> str:
    """The path of the ``vramlab`` of this installation, else of one on the path."""
    for folder in _folders():
        path = os.path.join(folder, NAME)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    path = shutil.which(NAME)
    if path is None:
        raise VramlabError("the program vramlab is not beside this package; install both anew: pip install --force-reinstall vramlab")
    return path


def _folders() -> Iterator[str]:
    """Where scripts of this package can lie: that of the environment, of ``--user``, of ``--prefix`` and of ``--target``."""
    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", scheme=_user_scheme())
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    prefix = _above(packages, 3)
    if prefix is not None:
        yield os.path.join(prefix, "bin")
    yield os.path.join(packages, "bin")


def _user_scheme() -> str:
    if sys.version_info >= (3, 10):
        return sysconfig.get_preferred_scheme("user")
    return "posix_user"


def _above(folder: str, levels: int) -> Optional[str]:
    """``PREFIX`` of ``PREFIX/lib/python3.12/site-packages``."""
    if os.path.basename(folder) not in ("site-packages", "dist-packages"):
        return None
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder
