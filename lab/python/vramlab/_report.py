"""What a run came to, from what vramlab and the process say of it. Only data: nothing is started here."""

from typing import Any, Dict, List, NamedTuple, Optional

from ._error import VramlabError


class Figures(NamedTuple):
    """Of the device whose peak is the highest."""

    peak_allocated: int
    peak_reserved: int
    out_of_memory: bool
    asked: Optional[int]
    where: Optional[str]
    memory: Optional[int]
    complete: bool


def figures(report: Dict[str, Any], outcome: Dict[str, Any]) -> Figures:
    """``report`` is what ``vramlab report --format json`` says of the recording, ``outcome`` what the process wrote at its end.

    A recording whose program took and gave faster than it was read has windows; PyTorch's own peaks have none, so the higher of both
    counts.
    """
    devices = report.get("devices")
    if not isinstance(devices, list) or not devices:
        raise VramlabError("the recording has no device in it; put the model and the batch on 'cuda' inside the function")
    recorded = max(devices, key=lambda device: device["peak_reserved"])
    counted = _counted(outcome.get("devices", []), recorded["device"])
    allocated = max(recorded["peak_allocated"], counted.get("peak_allocated", 0))
    reserved = max(recorded["peak_reserved"], counted.get("peak_reserved", 0))
    failed = outcome["ended"] == "out of memory"
    request = _failed_request(devices) if failed else {}
    lines = outcome.get("where") or []
    return Figures(
        peak_allocated=allocated,
        peak_reserved=reserved,
        out_of_memory=failed,
        asked=request.get("requested"),
        where=lines[-1] if failed and lines else None,
        memory=counted.get("memory"),
        complete=(allocated, reserved) == (recorded["peak_allocated"], recorded["peak_reserved"]),
    )


def _counted(devices: List[Dict[str, int]], index: int) -> Dict[str, int]:
    return devices[index] if 0 <= index < len(devices) else {}


def _failed_request(devices: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Of the findings, the one about the request that failed."""
    findings = [finding["evidence"] for device in devices for finding in device.get("findings", [])]
    return next((evidence for evidence in findings if evidence.get("kind") == "out_of_memory"), {})


def refusal(outcome: Dict[str, Any]) -> Optional[str]:
    """Why there are no figures, and what to do; none where there are some."""
    if outcome["ended"] == "raised":
        return f"the function failed{_at(outcome)}: {_one_line(outcome['error'])}; {_remedy(outcome)}"
    if outcome.get("devices") or outcome["ended"] == "out of memory":
        return None
    if outcome.get("torch") is None:
        return "the function never imported PyTorch; build the model and train it inside the function"
    return "the function never used the GPU; put the model and the batch on device 'cuda' inside the function"


def _at(outcome: Dict[str, Any]) -> str:
    lines = outcome.get("where") or []
    return f" at {lines[-1]}" if lines else ""


def _remedy(outcome: Dict[str, Any]) -> str:
    error = outcome["error"]
    if error.startswith("ModuleNotFoundError") and "'torch'" in error:
        return "install PyTorch beside vramlab, as for a GPU: pip install torch"
    if outcome.get("torch") is not None and outcome.get("cuda") is None:
        return f"this PyTorch ({outcome['torch']}) is one without CUDA; install the usual one, which needs no GPU: pip install torch"
    return "make it run, then ask again"


def _one_line(text: str, longest: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
