"""Calls the function, in the process that runs on the card that is not there, and writes down how it ended."""

import json
import os
import pickle
import sys
import traceback
from typing import Any, Dict, Optional

FRAMES = 5
"""Lines of the program that an error names, the innermost last."""


def call(payload: str, outcome: str) -> int:
    """Calls what ``payload`` holds and writes to ``outcome``. What comes back is the exit code."""
    # Whoever ends the process meanwhile leaves this.
    _write(outcome, {"ended": "began"})
    ended: Dict[str, Any] = {"ended": "returned"}
    try:
        with open(payload, "rb") as file:
            function, args, kwargs = pickle.load(file)
        function(*args, **kwargs)
    except SystemExit as left:
        if left.code not in (None, 0):
            ended = _raised(left)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        traceback.print_exc()
        ended = _raised(error)
    ended.update(_of_torch())
    _write(outcome, ended)
    return 0 if ended["ended"] == "returned" else 1


def _write(path: str, outcome: Dict[str, Any]) -> None:
    """Whole, or not at all."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(outcome, file)
    os.replace(part, path)


def _raised(error: BaseException) -> Dict[str, Any]:
    memory = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return {
        "ended": "out of memory" if memory else "raised",
        "error": f"{type(error).__name__}: {error}",
        "where": _where(error),
    }


def _where(error: BaseException) -> list:
    """``file:line`` of the function and of what it called, without this file and without PyTorch's own."""
    frames = traceback.extract_tb(error.__traceback__)
    torch = _folder("torch")
    own = [frame for frame in frames if frame.filename != __file__ and not (torch and frame.filename.startswith(torch))]
    return [f"{frame.filename}:{frame.lineno}" for frame in own[-FRAMES:]]


def _folder(package: str) -> Optional[str]:
    file = getattr(sys.modules.get(package), "__file__", None)
    return os.path.dirname(file) + os.sep if file else None


def _of_torch() -> Dict[str, Any]:
    """What PyTorch itself counted, by device, where it used one."""
    torch = sys.modules.get("torch")
    told: Dict[str, Any] = {"torch": None, "cuda": None, "devices": []}
    if torch is None:
        return told
    told["torch"] = str(getattr(torch, "__version__", "unknown"))
    try:
        told["cuda"] = torch.version.cuda
        if torch.cuda.is_initialized():
            told["devices"] = [_of_device(torch, index) for index in range(torch.cuda.device_count())]
    except Exception:
        # A PyTorch that broke on the way has said so already.
        traceback.print_exc()
    return told


def _of_device(torch: Any, index: int) -> Dict[str, int]:
    stats = torch.cuda.memory_stats(index)
    return {
        "peak_allocated": int(stats.get("allocated_bytes.all.peak", 0)),
        "peak_reserved": int(stats.get("reserved_bytes.all.peak", 0)),
        "memory": int(torch.cuda.get_device_properties(index).total_memory),
    }
