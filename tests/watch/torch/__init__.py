"""As much of PyTorch as vramlab_watch touches, without a GPU: an allocator that hands out places in one segment."""

__version__ = "2.11.0+stand-in"

from . import _C, cuda, optim  # noqa: E402, F401
