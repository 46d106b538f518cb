"""Which versions of PyTorch were tried on a card that is not there: the table of the guide's page `stand-in`."""

FIRST = (2, 4)
FIRST_WITH_READS = (2, 5)
"""Those before have no hook for every op, by which the values that a program reads back are computed."""
LAST = (2, 15)
FIRST_WITH_CONVOLUTIONS = (2, 8)
"""The cuDNN of those before (9.1 to 9.5) has no mode without a device."""


def remark(version):
    """What a program should know of its PyTorch, as a sentence; ``None`` for a version that was tried.

    ``version`` is ``torch.__version__``, such as ``"2.11.0+cu130"``.
    """
    try:
        known = tuple(int(part) for part in str(version).split("+")[0].split(".")[:2])
    except ValueError:
        known = ()
    if FIRST_WITH_CONVOLUTIONS <= known <= LAST:
        return None
    name = "PyTorch " + str(version).split("+")[0]
    if FIRST <= known < FIRST_WITH_CONVOLUTIONS:
        first = _name(FIRST_WITH_CONVOLUTIONS)
        reads = "" if known >= FIRST_WITH_READS else ", and what it reads back is not computed"
        return f"{name} works on a simulated card, but its convolutions fail (its cuDNN needs a real one){reads}. Use {first} or later."
    return f"{name} was not tried on a simulated card: its figures may differ. {_name(FIRST)} to {_name(LAST)} were."


def _name(version):
    return ".".join(str(part) for part in version)
