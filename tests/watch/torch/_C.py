import bisect
import gc
import os
import pickle
import sys
import threading
import time

MIB = 1 << 20
# The GPU of this process, and those that it has a context on.
_own = int(os.environ.get("LOCAL_RANK", "0"))
_contexts = [int(index) for index in os.environ.get("CONTEXTS", str(_own)).split(",")]
_lock = threading.Lock()
# Of the memory: told after each.
_looks, _looked = 0, threading.Condition(_lock)
_ring = []
_ring_size = 0
_lines = False
_segments = []  # (address, size)
_live = {}  # address: (size asked, frames)
_order = []  # the addresses in _live, ascending


def _say(action, addr, size, frames=None):
    entry = {
        "action": action, "addr": addr, "size": size, "stream": 0, "time_us": time.time_ns() // 1000,
        "compile_context": "N/A", "user_metadata": "",
    }
    if frames is not None:
        entry["frames"] = frames
    _ring.append(entry)
    del _ring[: max(0, len(_ring) - _ring_size)]


def _cuda_record_memory_history(enabled, context, max_entries, clear_history=False):
    global _ring_size, _lines
    with _lock:
        _ring_size = max_entries if enabled else 0
        if not enabled or clear_history:
            _ring.clear()
        _lines = context is not None


def _cuda_isHistoryEnabled():
    return _ring_size > 0


def _cuda_hasPrimaryContext(device):
    return device in _contexts


def _cuda_getMemoryFraction(device):
    return 1.0


def _within(base, total):
    """The addresses of a segment's blocks: a leak of a thousand steps has a hundred segments, and is looked at at each."""
    return _order[bisect.bisect_left(_order, base) : bisect.bisect_left(_order, base + total)]


def take(size, line):
    """A block of `size` bytes, a multiple of 2 MiB, in the first hole that has room; line: who asks."""
    with _lock:
        for base, total in _segments:
            at = base
            for address in _within(base, total):
                if address - at >= size:
                    break
                at = address + _live[address][0]
            if base + total - at >= size:
                break
        else:
            base = 0x7F0000000000 + 0x10000000 * len(_segments)
            at, total = base, max(20 * MIB, size)
            _segments.append((base, total))
            _say("segment_alloc", base, total)
        frames = [{"filename": "/home/me/train.py", "line": line, "name": "step"}] if _lines else None
        _live[at] = (size, frames)
        bisect.insort(_order, at)
        _say("alloc", at, size, frames)
        return at


def give(address):
    with _lock:
        size, _ = _live.pop(address)
        del _order[bisect.bisect_left(_order, address)]
        _say("free_completed", address, size)


def wait_for_look():
    """Until the memory was looked at once more, however long that takes on a busy machine."""
    with _looked:
        seen = _looks
        if not _looked.wait_for(lambda: _looks > seen, timeout=300):
            raise TimeoutError("nobody looks at the memory")


def allocated():
    with _lock:
        return sum(size for size, _ in _live.values())


class _distributed_c10d:
    """The flight recorder."""

    entries = []

    @classmethod
    def _dump_nccl_trace(cls, includeCollectives, includeStackTraces, onlyActive):
        return pickle.dumps({"entries": cls.entries[-2000:]})


def exchange(milliseconds):
    """An exchange that takes so long, where they are timed."""
    entry = {"time_created_ns": time.time_ns(), "is_p2p": False, "state": "completed"}
    if os.environ.get("TORCH_NCCL_ENABLE_TIMING") == "1":
        entry["duration_ms"] = milliseconds
    _distributed_c10d.entries.append(entry)


def _cuda_memorySnapshot(pool):
    global _looks
    # PyTorch asks for it to tell lines of source.
    hasattr(sys.modules["torch"], "_inductor")
    if gc.isenabled() and threading.current_thread() is not threading.main_thread():
        print("a look's objects are collected", file=sys.stderr)
    with _lock:
        segments = []
        for base, total in _segments:
            blocks, at = [], base
            for address in _within(base, total):
                if address > at:
                    blocks.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive"})
                size, frames = _live[address]
                block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
                blocks.append({**block, "frames": frames or []})
                at = address + size
            if at < base + total:
                blocks.append({"address": at, "size": base + total - at, "requested_size": 0, "state": "inactive"})
            segments.append({
                "device": _own, "address": base, "total_size": total, "stream": 0, "segment_type": "large",
                "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
                "allocated_size": sum(_live[at][0] for at in _within(base, total)),
            })
        _looks += 1
        _looked.notify_all()
        return {
            "segments": segments, "device_traces": [[] for _ in range(_own)] + [list(_ring)], "external_annotations": [],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        }
