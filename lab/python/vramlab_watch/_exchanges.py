"""How long a step's exchanges with other ranks take, waiting for them included: PyTorch's own record of NCCL's collectives says it
(the flight recorder), where they are timed (``TORCH_NCCL_ENABLE_TIMING=1``, which `vramlab watch` sets for a program that it starts).
"""

import pickle
import sys
import time
from collections import deque

import torch

SHARE = 0.0025
"""Part of the time that reading the record may take: it is read whole, some microseconds an entry."""
SOONEST = 1.0
"""Seconds between two times that it is read."""
STEPS = 32
"""Steps that are remembered: a median is of those that the record still has all exchanges of."""


class Exchanges:
    """Reads the record now and then."""

    def __init__(self):
        # Unix times at which steps ended, in microseconds.
        self.ends = deque(maxlen=STEPS)
        self.due = 0.0
        self.took = None

    def look(self, steps):
        """Microseconds that the exchanges of a step took lately; none, where that is not known. ``steps``: the ends of those since
        the last look."""
        self.ends.extend(steps)
        began = time.monotonic()
        if self.due is None or began < self.due or len(self.ends) < 3:
            return self.took
        try:
            self.took = self._median(_entries())
            self.due = began + max(SOONEST, (time.monotonic() - began) / SHARE)
        except Exception:
            # A PyTorch that has no such record, or another.
            self.due = None
        return self.took

    def _median(self, entries):
        """Of the steps that all exchanges are known of. The newest may still have some under way on the GPU."""
        if not entries:
            return None
        oldest = min(entry["time_created_ns"] for entry in entries) // 1000
        ends, sums = list(self.ends)[:-1], []
        for begin, end in zip(ends, ends[1:]):
            of_step = [entry for entry in entries if begin <= entry["time_created_ns"] // 1000 < end]
            # What is sent and received in one go is timed as a whole; the parts have no times of their own.
            known = [entry.get("duration_ms") for entry in of_step if not entry.get("is_p2p") or entry.get("duration_ms")]
            if begin >= oldest and known and None not in known:
                sums.append(int(1000 * sum(known)))
        return sorted(sums)[len(sums) // 2] if sums else None


def _entries():
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return []
    record = torch._C._distributed_c10d._dump_nccl_trace(
        includeCollectives=True, includeStackTraces=False, onlyActive=False
    )
    return pickle.loads(record)["entries"]
