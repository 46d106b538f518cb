"""What goes wrong, in two sentences: what, and what to do."""


class VramlabError(RuntimeError):
    """There is no estimate. The message says why, and what to do."""
