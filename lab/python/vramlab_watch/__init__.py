"""Lets vramlab watch the GPU memory of this process while it trains.

``vramlab watch -- python train.py`` loads it by itself. Where one prefers to: ``import vramlab_watch`` (before or after
torch), then ``vramlab watch --attach`` in another terminal, now or later.

While nobody watches it costs nothing but PyTorch's own ring of recent allocator events. Nothing that happens here can
reach the training program: every failure ends the watching, and nothing else. Needs no packages but PyTorch.
"""

from ._steps import mark_step
from ._watch import start

__all__ = ["mark_step", "start"]
__version__ = "0.1.0"

start()
