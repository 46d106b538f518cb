"""Calls a function once a module has been imported, by whomever."""

import importlib.abc
import importlib.util
import sys


def when_imported(name, call):
    """Calls ``call(module)`` now if the module is there, else right after its import."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        call(module)
        return
    if module is not None:
        # It is being imported at this very moment, by the code that imports us.
        _after(module, call)
        return
    sys.meta_path.insert(0, _Finder(name, call))


def _after(module, call):
    spec = getattr(module, "__spec__", None)
    loader = getattr(spec, "loader", None)
    if spec is None or loader is None:
        return
    import threading
    import time

    def wait():
        while getattr(spec, "_initializing", False):
            time.sleep(0.05)
        call(module)

    threading.Thread(target=wait, name="vramlab-watch-import", daemon=True).start()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name, call):
        self.name, self.call = name, call

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        # Only once, and not while the others are asked.
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.call)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, with one call behind it."""

    def __init__(self, loader, call):
        self._loader, self._call = loader, call

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # The module keeps the loader it would have had.
        module.__loader__ = self._loader
        module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._call(module)
