"""When watching begins: as soon as PyTorch is there and CUDA is in use."""

import os
import threading

from ._complaint import complain

MEETING = float(os.environ.get("VRAMLAB_WATCH_WAIT", 10.0))
"""Seconds that a program waits at most for who started it, on a card that is not there: then the history has its first allocation."""
_lock = threading.Lock()
_server = None
_asked = False


def start():
    """Begins once. Loads nothing: where torch is not imported yet, its import is waited for."""
    global _asked
    with _lock:
        if _asked:
            return
        _asked = True
    if os.environ.get("VRAMLAB_WATCH") == "off":
        return
    from ._later import when_imported

    when_imported("torch", _torch_is_there)


def _torch_is_there(torch):
    try:
        # What is queued here runs right after CUDA's initialisation, before the first allocation.
        if os.environ.get("VRAMLAB_CARD"):
            torch.cuda._lazy_call(_card_is_not_there)
        torch.cuda._lazy_call(_cuda_is_there)
    except Exception as error:  # A PyTorch without CUDA, or one that changed.
        complain(error)


def _cuda_is_there():
    global _server
    try:
        from . import _recorder, _server as server, _steps

        recorder = _recorder.Recorder()
        recorder.begin()
        with _lock:
            if _server is None:
                _server = server.Server(recorder)
                _server.start()
        if _recorder.ABSENT:
            _steps.follow(recorder, _server.catch_up, _server.leave)
            # `vramlab watch` looks on; `vramlab fit` wants to know how far it comes, and nothing else.
            if os.environ.get("VRAMLAB_WATCH_DIR") and "VRAMLAB_WATCH_STEPS" not in os.environ:
                _server.meet(MEETING)
        else:
            _steps.follow(recorder)
    except Exception as error:
        complain(error)


def _card_is_not_there():
    """The program runs on the stand-in: what it reads back is computed here."""
    _remark_on_version()
    try:
        from . import _kernels

        _kernels.start()
    except Exception as error:
        complain(error)


def _remark_on_version():
    """Says once for a job, and in its recording, where nobody has tried its PyTorch on such a card."""
    try:
        import sys

        import torch

        from . import _server, _versions

        remark = _versions.remark(torch.__version__)
        if remark and int(os.environ.get("RANK", 0)) == 0:
            print(f"vramlab: {remark}", file=sys.stderr)
            _server.last_words.append(lambda: [remark])
    except Exception as error:
        complain(error)
