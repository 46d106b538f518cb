"""Python runs this at its start where `vramlab watch` put it on the path. It loads vramlab_watch and nothing else."""

import os
import sys


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        # The site's own, which this one stands in front of.
        import sitecustomize  # noqa: F401
    except ImportError:
        if this is not None:
            sys.modules["sitecustomize"] = this
    package = os.environ.get("VRAMLAB_WATCH_PACKAGE")
    if not package:
        return
    sys.path.append(package)
    try:
        import vramlab_watch  # noqa: F401
    except Exception as error:
        if os.environ.get("VRAMLAB_WATCH") == "debug":
            print(f"vramlab_watch: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.path.remove(package)


_load()
