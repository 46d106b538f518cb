"""Where steps of the training end: where its optimizer steps."""

import time

_recorder = None
_first = None


def follow(recorder):
    """Hears of every optimizer's step from here on."""
    global _recorder
    _recorder = recorder
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
        if _first == id(optimizer):
            mark_step()
    except Exception:
        pass


def mark_step():
    """Ends a step here. For programs without a torch optimizer."""
    if _recorder is not None:
        _recorder.steps.append(time.time_ns() // 1000)
