"""Which versions of PyTorch were tried on a card that is not there: the table of the guide's page `stand-in`."""

FIRST = (2, 8)
LAST = (2, 15)
WITHOUT_CONVOLUTIONS = (2, 6)
"""Its cuDNN (9.1) has no mode without a device."""


def remark(version):
    """What a program should know of its PyTorch, as a sentence; ``None`` for a version that was tried.

    ``version`` is ``torch.__version__``, such as ``"2.11.0+cu130"``.
    """
    try:
        known = tuple(int(part) for part in str(version).split("+")[0].split(".")[:2])
    except ValueError:
        known = ()
    if FIRST <= known <= LAST:
        return None
    name = "PyTorch " + str(version).split("+")[0]
    if known == WITHOUT_CONVOLUTIONS:
        return f"{name} works on a simulated card, but its convolutions fail: the cuDNN it brings needs a real one. Use {_name(FIRST)} or later."
    return f"{name} was not tried on a simulated card: its figures may differ. {_name(FIRST)} to {_name(LAST)} were."


def _name(version):
    return ".".join(str(part) for part in version)
