"""As much of PyTorch as vramlab_watch touches, without a GPU: an allocator that hands out places in one segment."""

import sys

__version__ = "2.11.0+stand-in"


def __getattr__(name):
    if name == "_inductor":
        print("PyTorch's compiler is imported", file=sys.stderr)
    raise AttributeError(name)


from . import _C, cuda, distributed, optim  # noqa: E402, F401
