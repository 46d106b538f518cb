"""Where steps of the training end: where its optimizer steps."""

import os
import sys
import time
import weakref

from ._complaint import complain

_recorder = None
_first = None
_left = None
_then = None
_leave = None
_optimizers = {}


def follow(recorder, then=None, leave=None):
    """Hears of every optimizer's step from here on, and calls ``then`` after each, and ``leave`` before the program is ended."""
    global _recorder, _then, _leave, _left
    _recorder, _then, _leave = recorder, then, leave
    _left = _wanted()
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(_stepped)
    except Exception:
        # PyTorch before 2.0 has no such hook: the run then is one long step, unless mark_step() is called.
        pass


def _stepped(optimizer, args, kwargs):
    global _first
    try:
        # A program with several optimizers (a GAN) steps when the first of them does.
        if _first is None:
            _first = id(optimizer)
        _optimizers.setdefault(id(optimizer), weakref.ref(optimizer))
        if _first == id(optimizer):
            _ended(_then is not None and _label())
    except Exception:
        pass


def _label():
    """Says what the optimizers' tensors are for; whether it did. An optimizer of the program's own making need not have any."""
    try:
        return _recorder.label([known() for known in _optimizers.values()])
    except Exception as error:
        complain(error)
        return False


def mark_step():
    """Ends a step here. For programs without a torch optimizer."""
    _ended(False)


def _ended(now):
    """A step has ended. ``now``: what happened is to be looked at before the program goes on."""
    global _left
    if _recorder is not None:
        _recorder.steps.append(time.time_ns() // 1000)
        if _left is not None:
            _left -= 1
        last = _left is not None and _left <= 0
        if _then is not None:
            _then(now or last)
        if last:
            if _leave is not None:
                _leave()
            _end()


def _wanted():
    """The steps after which the program is to end, as `vramlab fit` asks; none, where it is to go on."""
    try:
        return int(os.environ["VRAMLAB_WATCH_STEPS"])
    except (KeyError, ValueError):
        return None


def _end():
    """Ends the program as if it were done: whoever asked wants to know how far it comes, nothing else."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(0)
