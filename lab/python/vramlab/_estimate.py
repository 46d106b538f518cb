"""A function, run on a card that is not there."""

import atexit
import html
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from . import _report, _sizes
from ._binary import find
from ._error import VramlabError

_PATIENCE = 10.0
"""Seconds that processes have to end once they are asked to."""

_START = """\
import os, sys
here, callers = os.path.dirname(os.path.abspath(__file__)), {path!r}
sys.path[:] = callers + [entry for entry in sys.path if entry not in callers and entry != here]
from vramlab._call import call
sys.exit(call({payload!r}, {outcome!r}))
"""
"""The program: it looks for modules where the caller looks, and not where it lies."""


@dataclass(frozen=True)
class Estimate:
    """What a function took on a card. Sizes are bytes."""

    device: str
    """The card's name."""
    peak_allocated: int
    """``torch.cuda.max_memory_allocated()`` of the whole run."""
    peak_reserved: int
    """``torch.cuda.max_memory_reserved()`` of the whole run: what the card must have, beside the context."""
    out_of_memory: bool
    """Whether it ended because a request for memory failed."""
    where: Optional[str]
    """``file:line`` at which it ran out of memory."""
    asked: Optional[int]
    """What was asked for there, where that is known."""
    memory: Optional[int]
    """Memory of the card as a program sees it."""
    complete: bool
    """Whether the recording holds the peaks. The figures do in any case."""
    recording: str
    """The recording, for ``vramlab open``. Without ``record=`` it goes when this Python ends."""

    @property
    def fits(self) -> bool:
        """Whether it ran to its end."""
        return not self.out_of_memory

    def report(self) -> str:
        """What ``vramlab report`` says of the recording: who held the peak, what failed, what would help."""
        return _vramlab(["report", self.recording, "--no-settings"])

    def __str__(self) -> str:
        figures = "; ".join(f"{name} {value}" for name, value in self._rows())
        return f"{self.device}: {figures}. vramlab open {self.recording}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:right'>{html.escape(value)}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table><caption>{html.escape(self.device)} (simulated)</caption>{rows}</table>"

    def _rows(self) -> List[Tuple[str, str]]:
        rows = []
        if self.out_of_memory:
            asked = f", asked for {_sizes.told(self.asked)}" if self.asked else ""
            rows.append(("out of memory", f"at {self.where or 'a line that is not known'}{asked}"))
        rows.append(("peak allocated", _sizes.told(self.peak_allocated)))
        rows.append(("peak reserved", _sizes.told(self.peak_reserved)))
        if self.memory:
            rows.append(("the card has", _sizes.told(self.memory)))
        return rows


def estimate(
    fn: Callable[..., Any],
    *args: Any,
    device: str = "rtx-4090",
    limit: Optional[_sizes.Size] = None,
    record: Union[str, "os.PathLike[str]", None] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout: Optional[float] = None,
    **kwargs: Any,
) -> Estimate:
    """Runs ``fn(*args, **kwargs)`` on a card that is not there, and says what memory it took.

    ``fn`` runs in a process of its own, so that it may be one of a notebook and leaves nothing behind. It builds its model itself,
    on device "cuda"; what it returns is dropped.

    device: a card of ``vramlab list``: "rtx-4090", "h100-80gx8" for eight of them.
    limit: memory of a smaller card of the same kind: bytes, or a text such as "16GiB".
    record: a file to keep the recording in; it must not exist yet.
    env: more variables for the process, such as PYTORCH_ALLOC_CONF.
    timeout: seconds after which it is given up.

    Raises VramlabError where there is no estimate. Out of memory is none: see ``Estimate.out_of_memory``.
    """
    name = device[4:] if device.startswith("sim:") else device
    folder = tempfile.mkdtemp(prefix="run-", dir=_folder())
    recording = os.path.abspath(os.fspath(record)) if record is not None else os.path.join(folder, "run.vram")
    if os.path.exists(recording):
        raise VramlabError(f"{recording} is there already; give record= a new name")
    program, outcome = _program(folder, fn, args, kwargs)
    command = [find(), "watch", "--device", f"sim:{name}", "--record", recording]
    if limit is not None:
        command += ["--limit", str(_sizes.read(limit))]
    said = _run([*command, "--", sys.executable, program], {**_PATIENT, **(env or {})}, folder, timeout)
    ended = _outcome(outcome, said)
    refused = _report.refusal(ended)
    if refused is not None:
        raise VramlabError(refused)
    if not os.path.exists(recording):
        raise VramlabError(f"nothing was recorded; vramlab said: {_last(said)}")
    report = json.loads(_vramlab(["report", recording, "--no-settings", "--format", "json"]))
    return Estimate(device=name, recording=recording, **_report.figures(report, ended)._asdict())


_PATIENT = {"VRAMLAB_WATCH_WAIT": "60"}
"""However busy the machine is, the function is seen from its beginning."""


def _program(folder: str, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Tuple[str, str]:
    """The script that calls the function, and the file in which it says how that ended."""
    try:
        import cloudpickle as pickler
    except ImportError:
        # Functions of modules go without it; those of notebooks do not.
        import pickle as pickler
    try:
        pickled = pickler.dumps((fn, args, kwargs))
    except Exception as error:
        raise VramlabError(
            f"the function can't be handed to another process ({type(error).__name__}: {error}); "
            "build the model, the data and whatever is open inside the function"
        ) from error
    # The recording is called by the script.
    called = "".join(letter for letter in getattr(fn, "__name__", "") if letter.isalnum() or letter == "_")
    program = os.path.join(folder, f"{called or 'function'}.py")
    payload, outcome = os.path.join(folder, "payload"), os.path.join(folder, "outcome")
    with open(payload, "wb") as file:
        file.write(pickled)
    with open(program, "w", encoding="utf-8") as file:
        file.write(_START.format(path=[str(entry) for entry in sys.path], payload=payload, outcome=outcome))
    return program, outcome


def _run(command: List[str], env: Mapping[str, str], folder: str, timeout: Optional[float]) -> str:
    """Runs it to its end, and returns what it said. Where we end first, so do all of its processes."""
    said = os.path.join(folder, "said")
    with open(said, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            raise VramlabError(f"the function still ran after {timeout:g} s; give it fewer steps, or a longer timeout=") from None
        except BaseException:
            _end(process)
            raise
    with open(said, encoding="utf-8", errors="replace") as file:
        return file.read()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the process and those that it started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(_PATIENCE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _outcome(path: str, said: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            outcome: Dict[str, Any] = json.load(file)
    except FileNotFoundError:
        # It never began: what vramlab says has what is wrong, and what to do.
        raise VramlabError(_last(said)) from None
    if outcome["ended"] == "began":
        raise VramlabError(f"the process ended before the function did ({_last(said)}); let the function return")
    return outcome


def _last(said: str, lines: int = 3) -> str:
    """The last lines, which tell why."""
    kept = [line.strip() for line in said.splitlines() if line.strip()][-lines:]
    return " / ".join(kept) or "it said nothing"


def _vramlab(arguments: List[str]) -> str:
    done = subprocess.run([find(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        raise VramlabError(f"vramlab {arguments[0]} failed: {_last(done.stderr)}")
    return done.stdout


_made: List[str] = []


def _folder() -> str:
    """Of this process, and gone with it."""
    if not _made or not os.path.isdir(_made[-1]):
        _made.append(tempfile.mkdtemp(prefix="vramlab-"))
        atexit.register(_remove, _made[-1], os.getpid())
    return _made[-1]


def _remove(folder: str, owner: int) -> None:
    # A forked child leaves its parent's alone.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
