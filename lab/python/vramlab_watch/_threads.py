"""Where the shadow's kernels are on: in the program's own threads, and not while autograd or an optimizer runs.

Code of Python that autograd runs (a checkpoint's second forward, a function's own backward) has them on again: it must decide as the
first time.
"""

import threading

import torch
import torch._dispatch.python
import torch.autograd.graph

KEY = "TESTING_ONLY_GenericMode"
"""Above everything but tracing: tensors that are not plain come by, and are handed on."""
_key = torch._C._dispatch_key_parse(KEY)
_switch = torch._C._dispatch_tls_set_dispatch_key_included
_is_on = torch._C._dispatch_tls_is_dispatch_key_included
BELOW = torch._C._dispatch_keyset_full_after(_key)
"""What comes behind the key."""
_local = threading.local()
_Exclude = torch._C._ExcludeDispatchKeyGuard
_aside = torch._C.DispatchKeySet(_key)
for _other in ("FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "Python", "PythonTLSSnapshot", "AutogradCPU"):
    _aside = _aside | torch._C.DispatchKeySet(torch._C._dispatch_key_parse(_other))


def aside():
    """A context in which operations of the processor are only that: no gradients, no transforms, no modes, not followed."""
    return _Exclude(_aside)


def again(call, args, kwargs):
    """Calls an operation anew, not followed."""
    before = _is_on(_key)
    _switch(_key, False)
    try:
        return call(*args, **kwargs)
    finally:
        _switch(_key, before)


def begin():
    """Switches the key on for this thread, and all that the program starts."""
    _switch(_key, True)
    _wrap(threading.Thread, "_bootstrap_inner", True)
    # Both names: the second was imported from the first.
    _wrap(torch.autograd.graph, "_engine_run_backward", False)
    _wrap(torch.autograd, "_engine_run_backward", False)
    _wrap(torch.autograd.function.BackwardCFunction, "apply", True, True)
    _while_tracing()
    from ._later import when_imported

    when_imported("torch.utils.checkpoint", _checkpoint)


def step_begins():
    """An optimizer steps: its operations, on many small tensors, decide nothing."""
    if _is_on(_key):
        _local.stepping = True
        _switch(_key, False)


def step_ends():
    """It has stepped."""
    if getattr(_local, "stepping", False):
        _local.stepping = False
        _switch(_key, True)


def makes_gradients():
    """Whether a function's own backward runs, and what it makes has no gradient itself."""
    return getattr(_local, "backward", False) and not torch.is_grad_enabled()


def _while_tracing():
    """PyTorch's dispatcher in Python, which traces programs, knows no such key."""
    real = torch._C._EnablePythonDispatcher

    class EnablePythonDispatcher:
        def __enter__(self):
            self.before = _is_on(_key)
            _switch(_key, False)
            self.real = real()
            return self.real.__enter__()

        def __exit__(self, *how):
            result = self.real.__exit__(*how)
            _switch(_key, self.before)
            return result

    torch._C._EnablePythonDispatcher = EnablePythonDispatcher
    torch._dispatch.python.enable_python_dispatcher = EnablePythonDispatcher


def _checkpoint(module):
    frame = getattr(module, "_CheckpointFrame", None)
    if frame is None:
        return
    init = frame.__init__

    def made(self, recompute_fn, *args, **kwargs):
        init(self, _switched(recompute_fn, True), *args, **kwargs)

    frame.__init__ = made


def _wrap(owner, name, on, backward=False):
    call = getattr(owner, name, None)
    if call is not None:
        setattr(owner, name, _switched(call, on, backward))


def _switched(call, on, backward=False):
    """The same, with the key on or off meanwhile; ``backward``: it is a function's own backward."""

    def called(*args, **kwargs):
        # A step that raised an error has not ended.
        step_ends()
        before, outer = _is_on(_key), getattr(_local, "backward", False)
        _switch(_key, on)
        _local.backward = backward
        try:
            return call(*args, **kwargs)
        finally:
            _switch(_key, before)
            _local.backward = outer

    called.__name__ = getattr(call, "__name__", "called")
    called.__wrapped__ = call
    return called
