"""``python -m vramlab`` is ``vramlab``."""

import os
import sys

from ._binary import find
from ._error import VramlabError


def main() -> None:
    try:
        binary = find()
    except VramlabError as error:
        sys.exit(f"vramlab: {error}")
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
