"""Sizes as people write and read them."""

import re
from typing import Union

from ._error import VramlabError

Size = Union[int, str]
"""Bytes, or a text such as "20GiB"."""

_UNITS = {"": 1, "b": 1}
_UNITS.update({f"{letter}ib": 1024 ** (power + 1) for power, letter in enumerate("kmgt")})
_UNITS.update({f"{letter}b": 1000 ** (power + 1) for power, letter in enumerate("kmgt")})
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def read(size: Size) -> int:
    """Bytes."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = _TEXT.fullmatch(size) if isinstance(size, str) else None
    unit = _UNITS.get(found.group(2).lower()) if found else None
    if found is None or unit is None:
        raise VramlabError(f"{size!r} is no size; give bytes, or a text such as '20GiB'")
    return int(float(found.group(1)) * unit)


def told(size: int) -> str:
    """As vramlab's screens tell it: 22.84 GiB."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size} B"
