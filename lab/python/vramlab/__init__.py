"""How much memory of a GPU a PyTorch function takes, without that GPU.

``vramlab.estimate(fn, device="rtx-4090")`` runs ``fn`` in a process of its own on a card that is not there and returns the peaks;
``vramlab.assert_fits(fn, device="rtx-4090")`` is the same for tests. The ``vramlab`` command shows the rest.
"""

from ._error import VramlabError
from ._estimate import Estimate, estimate
from ._fits import assert_fits

__all__ = ["Estimate", "VramlabError", "assert_fits", "estimate"]
