"""What PyTorch's allocator did since the last look.

Everything that loads or calls Python code of torch happens in :meth:`Recorder.begin`, on the program's own thread. A look,
on the watching thread, calls torch's C functions only: an import there could meet a half-finished one of the program's.
"""

import os
import sys
import threading
import time
from collections import deque

import torch
import torch.cuda.memory

from ._exchanges import Exchanges
from ._server import ABSENT

ENTRIES = 1 << 18 if ABSENT else 4096
"""Events that PyTorch keeps of each device. A look reads them all, so that more of them make a look dearer; where the program waits
for looks they are forgotten after each."""
FIRST_STEPS = 20
"""Steps whose allocations are recorded with their lines of source; what lasts is mostly taken by then."""
LABELLED_STEPS = 8
"""Steps after which the optimizers' tensors are told: their state comes with the first, or later where a scaler skips it."""
SAMPLE = 64
"""From then on one of so many looks is one with lines: taking them costs a few microseconds an allocation."""
_looking = threading.local()
"""Whether this thread is inside PyTorch's snapshot."""
WINDOW, RISES = 4, 5
"""Memory grows where the least that is held in so many looks has risen from one such window to the next, all of so many."""


class Recorder:
    """Reads PyTorch's ring of allocator events, each event once."""

    def __init__(self):
        self.entries = int(os.environ.get("VRAMLAB_WATCH_ENTRIES", ENTRIES))
        self.stacks = os.environ.get("VRAMLAB_WATCH_STACKS", "python" if ABSENT else "sampled")
        # Times at which steps ended. A training that steps faster than it is looked at for minutes loses the oldest.
        self.steps = deque(maxlen=1 << 16)
        self.stepped = 0
        self.looks = 0
        self.last = {}
        self.lines = self.stacks != "none"
        # Whose recording it is; the program may begin one of its own at any time.
        self.ours = False
        # Whether this PyTorch can forget what it has recorded.
        self.forgets = True
        self.changing = threading.RLock()
        self.recording = None
        self.floors = []
        # What the next part tells of blocks; after how many steps it was told.
        self.labels, self.labelled = [], 0
        # Whether somebody watches.
        self.watched = False
        self.floor = None
        self.hello = {}
        # On a card that is not there exchanges take no time.
        self.exchanges = None if ABSENT else Exchanges()

    def begin(self):
        """Turns PyTorch's recording on; one that the program turned on already is left as it is."""
        enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if not (enabled and enabled()):
            self._record()
            self.ours = True
        self._make_room()
        self.hello = self._hello()
        # The first look loads what later ones need.
        self.look(whole=True)

    def _make_room(self):
        """The program's own recording comes first: when it begins one, ours ends, and the ring is the program's, as long and as empty as
        it would have been. When it ends it, ours begins again."""
        record = torch._C._cuda_record_memory_history

        def recorded(*args, **kwargs):
            if self.recording == threading.get_ident():
                return record(*args, **kwargs)
            with self.changing:
                enabled = args[0] if args else kwargs.get("enabled")
                if enabled and self.ours:
                    self.ours = False
                    self._as_ours(torch.cuda.memory._record_memory_history, enabled=None)
                result = record(*args, **kwargs)
                if not enabled:
                    self._record()
                    self.ours = True
                return result

        torch._C._cuda_record_memory_history = recorded

    def _as_ours(self, call, **settings):
        self.recording = threading.get_ident()
        try:
            call(**settings)
        finally:
            self.recording = None

    def label(self, optimizers):
        """Notes what the tensors of optimizers are for, which a stack can't tell for sure. Whether it did: then the program is to wait for a look."""
        if not self.watched or self.labelled >= LABELLED_STEPS:
            return False
        self.labelled += 1
        labels = []
        for optimizer in filter(None, optimizers):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    _label(labels, parameter, "p")
                    _label(labels, parameter.grad, "g")
            for state in optimizer.state.values():
                for tensor in state.values() if isinstance(state, dict) else ():
                    _label(labels, tensor, "o")
        self.labels = labels
        return True

    def is_roomy(self):
        """Whether the ring is as long as it is meant to be."""
        return self.entries >= ENTRIES

    def forget(self):
        """Empties the ring of what was looked at. Called while the program waits: nothing happens in between."""
        with self.changing:
            if not (self.ours and self.forgets):
                return
            try:
                self._record(clear_history=True)
                self.last.clear()
            except TypeError:
                self.forgets = False

    def _record(self, **more):
        settings = {
            "enabled": "all",
            "context": "alloc" if self.lines else None,
            "stacks": "all" if self.stacks == "all" else "python",
            "max_entries": self.entries,
            **more,
        }
        try:
            # A third fewer events. Which blocks wait for other streams is then not told.
            self._as_ours(torch.cuda.memory._record_memory_history, **settings, skip_actions=["free_requested"])
        except TypeError:
            self._as_ours(torch.cuda.memory._record_memory_history, **settings)

    def _hello(self):
        """Who this is."""
        try:
            count = torch.cuda.device_count()
            devices = [torch.cuda.get_device_properties(index) for index in range(count)]
        except Exception:
            devices = []
        rank, world = _rank()
        return {
            "version": 1,
            "pid": os.getpid(),
            "argv": [str(word) for word in getattr(sys, "orig_argv", sys.argv)],
            "rank": rank,
            "world": world,
            "local_rank": _local_rank(),
            "torch": str(torch.__version__),
            "device_names": [str(device.name) for device in devices],
            "device_bytes": [int(device.total_memory) for device in devices],
            "absent": ABSENT,
        }

    def look(self, whole):
        """What happened since the last look, and the part of a snapshot that tells it.

        The segments are there where it is to be ``whole``, or events are lost.
        """
        snapshot = _snapshot()
        now = time.time_ns() // 1000
        traces, lost = [], False
        for device, trace in enumerate(snapshot.get("device_traces", ())):
            fresh, found = self._fresh(device, trace, whole)
            lost |= not found
            traces.append(fresh)
        if lost:
            # What happened in between is not known: the state, and all that is still in the ring.
            traces = snapshot["device_traces"]
        seen = {"device_traces": traces, "allocator_settings": snapshot.get("allocator_settings", {})}
        if whole or lost:
            seen["segments"] = snapshot["segments"]
        part = {"whole": bool(whole or lost), "lost": bool(lost), "steps": self._take_steps(now)}
        part["limits"] = self._limits(len(traces))
        part["labels"], self.labels = self.labels, []
        part["contexts"] = self._contexts()
        if self.exchanges is not None and self.hello.get("world"):
            part["exchange"] = self.exchanges.look(part["steps"])
        self._sample(snapshot["segments"])
        return {"part": part}, seen

    def _sample(self, segments):
        """Lines of source now and then, and while memory grows: all the time they would be felt."""
        self.looks += 1
        grows = self._grows(segments)
        if self.stacks != "sampled":
            return
        lines = self.stepped < FIRST_STEPS or grows or self.looks % SAMPLE == 0
        with self.changing:
            if lines != self.lines and self.ours:
                self.lines = lines
                self._record()

    def _grows(self, segments):
        """Whether the least that is held between looks has risen again and again: what stays is worth its line."""
        held = sum(segment.get("allocated_size", 0) for segment in segments)
        self.floor = held if self.floor is None else min(self.floor, held)
        if self.looks % WINDOW == 0:
            self.floors = (self.floors + [self.floor])[-RISES:]
            self.floor = None
        floors = self.floors
        return len(floors) == RISES and all(one < next for one, next in zip(floors, floors[1:]))

    def _fresh(self, device, trace, whole):
        """The entries behind the last one seen, and whether that one was still there."""
        last = self.last.get(device)
        if trace:
            self.last[device] = _mark(trace, len(trace) - 1)
        if whole:
            return trace, True
        if last is None:
            # Nothing had happened at the last look. A ring that is full by now may have lost the beginning.
            return trace, len(trace) < self.entries
        time_of_last = last[0][4]
        for at in range(len(trace) - 1, -1, -1):
            if trace[at].get("time_us", 0) < time_of_last:
                break
            if _mark(trace, at) == last:
                return trace[at + 1 :], True
        return trace, not trace

    def _take_steps(self, until):
        steps = []
        while self.steps and self.steps[0] <= until:
            steps.append(self.steps.popleft())
        self.stepped += len(steps)
        return steps

    def _limits(self, count):
        """The share of its memory that each device may use."""
        fraction = getattr(torch._C, "_cuda_getMemoryFraction", None)
        try:
            return [float(fraction(index)) for index in range(count)] if fraction else []
        except Exception:
            return []


    def _contexts(self):
        """The devices that this process has a context on. Asking makes none."""
        has = getattr(torch._C, "_cuda_hasPrimaryContext", None)
        try:
            return [index for index in range(len(self.hello.get("device_names", ()))) if has and has(index)]
        except Exception:
            return []


def _snapshot():
    with _ImportsNothing():
        try:
            return torch._C._cuda_memorySnapshot(None)
        except TypeError:
            # Before 2.8 there are no pools to choose from.
            return torch._C._cuda_memorySnapshot()


class _ImportsNothing:
    """Where it tells lines of source, PyTorch asks for ``torch._inductor``, and so imports the whole compiler where the program has not: two
    seconds, and on the watching thread it could meet the program's own import halfway. A look is told that there is none.

    Only while a look lasts: PyTorch's own warnings name the caller of what is replaced here, and a program may filter them by that.
    """

    lock, looks = threading.Lock(), 0
    # In a list, or it would be a method.
    given = [None]

    def __enter__(self):
        _looking.on = True
        with self.lock:
            if not _ImportsNothing.looks:
                self.given[0] = torch.__dict__.get("__getattr__")
                if self.given[0] is not None:
                    torch.__getattr__ = _attribute(self.given[0])
            _ImportsNothing.looks += 1

    def __exit__(self, *how):
        _looking.on = False
        with self.lock:
            _ImportsNothing.looks -= 1
            if not _ImportsNothing.looks and self.given[0] is not None:
                torch.__getattr__ = self.given[0]


def _attribute(given):
    def __getattr__(name):
        if name == "_inductor" and getattr(_looking, "on", False):
            raise AttributeError(name)
        return given(name)

    return __getattr__


def _label(labels, tensor, use):
    """Notes the block that a tensor lies in."""
    try:
        tensor = getattr(tensor, "_local_tensor", tensor)
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            # Where its storage begins, without Python's object for that: PyTorch counts it as an owner.
            begins = tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()
            labels.append((tensor.get_device(), begins, use))
    except Exception:
        # A tensor without memory of its own.
        pass


def _rank():
    """Which of how many processes this is; none, where it is not one of several."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except Exception:
        pass
    rank, world = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return (int(rank), int(world)) if rank.isdigit() and world.isdigit() else (None, None)


def _local_rank():
    """Its rank among the processes of this machine, as launchers tell it; none, where they don't."""
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if rank.isdigit() else None


def _mark(trace, at):
    """What tells an entry from all others: itself and the one before."""
    return tuple(
        (entry.get("action"), entry.get("addr", entry.get("device_free")), entry.get("size"), entry.get("stream"),
         entry.get("time_us", 0))
        for entry in (trace[at], trace[at - 1] if at else {})
    )
