"""Why watching does not work: told to nobody but whoever asks."""

import os
import sys


def complain(error):
    """Says what failed on the standard error, where ``VRAMLAB_WATCH=debug`` asks for it."""
    if os.environ.get("VRAMLAB_WATCH") == "debug":
        print(f"vramlab_watch: {type(error).__name__}: {error}", file=sys.stderr)
