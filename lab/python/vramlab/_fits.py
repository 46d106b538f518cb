"""For tests: does it still fit?"""

from typing import Any, Callable, Optional

from . import _sizes
from ._estimate import Estimate, estimate

LINES = 12
"""Of the report, so many stand in the message of a test that failed."""


def assert_fits(fn: Callable[..., Any], *args: Any, device: str = "rtx-4090", within: Optional[_sizes.Size] = None, **more: Any) -> Estimate:
    """Fails where ``fn(*args)`` runs out of memory on the card, or reserves more than ``within`` (bytes, or "20GiB").

    The rest is as for ``vramlab.estimate``, whose result it returns.
    """
    most = _sizes.read(within) if within is not None else None
    came_to = estimate(fn, *args, device=device, **more)
    wrong = broken(came_to, most)
    if wrong is not None:
        lines = came_to.report().strip().splitlines()[:LINES]
        raise AssertionError("\n".join([wrong, "", *lines]))
    return came_to


def broken(came_to: Estimate, most: Optional[int]) -> Optional[str]:
    """What does not hold, in a sentence."""
    if came_to.out_of_memory:
        asked = f", which asked for {_sizes.told(came_to.asked)}" if came_to.asked else ""
        return f"it does not fit a simulated {came_to.device}: out of memory at {came_to.where}{asked}"
    if most is not None and came_to.peak_reserved > most:
        over = came_to.peak_reserved - most
        return (
            f"on a simulated {came_to.device} it reserves {_sizes.told(came_to.peak_reserved)}, "
            f"{_sizes.told(over)} more than the {_sizes.told(most)} of within="
        )
    return None
