"""Reads of values that were not computed: how many, by which rule, in which line of the program's source."""

import atexit
import json
import linecache
import os
import sys
import sysconfig

from . import _rules
from ._complaint import complain

MANY = 10_000
"""So many reads of one line between two steps, and the program is told that it waits for what will not come."""
LINES = 5
"""Lines of source in a sentence."""
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Endless(RuntimeError):
    """A loop waits for a value that is not computed."""


class Reads:
    """Counts them, and writes them where ``vramlab`` finds them."""

    def __init__(self, folder):
        self.counts = {}
        self.since = {}
        self.told = set()
        self.foreign = {}
        self.total, self.due = 0, 1
        self.pid = os.getpid()
        self.path = os.path.join(folder, f"{self.pid}.reads") if folder else None
        # Without any it says that values were followed.
        self.write()
        atexit.register(self.write)

    def note(self, rule, dtype):
        """The program reads what ``rule`` stands for."""
        where = self._line()
        key = (*where, rule, str(dtype).removeprefix("torch."))
        self.counts[key] = self.counts.get(key, 0) + 1
        self.total += 1
        if self.total >= self.due:
            # Now and then, for a program that is killed.
            self.due = self.total * 2
            self.write()
        since = self.since[where] = self.since.get(where, 0) + 1
        if since >= MANY and where not in self.told:
            self._tell(*where)

    def stepped(self):
        """The program's optimizer stepped: it does not stand still."""
        self.since.clear()

    def _tell(self, file, line):
        self.told.add((file, line))
        text = linecache.getline(file, line).strip()
        waits = text.startswith("while ")
        sentence = (
            f"{file}:{line} has read a value that was not computed {MANY:,} times without a step in between. "
            f"No card is there that could change it: {'the loop waits for ever' if waits else 'if it waits for it, it waits for ever'}."
        )
        print(f"vramlab: {sentence}", file=sys.stderr, flush=True)
        self.write()
        if waits:
            raise Endless(sentence)

    def _line(self):
        """The program's line: of the innermost frame that is its own, else of the innermost that is not PyTorch's."""
        frame, other = sys._getframe(2), None
        while frame is not None:
            name = frame.f_code.co_filename
            whose = self.foreign.get(name)
            if whose is None:
                whose = self.foreign[name] = _whose(name)
            if whose == 0:
                return name, frame.f_lineno
            if whose == 1 and other is None:
                other = name, frame.f_lineno
            frame = frame.f_back
        return other or ("", 0)

    def sentences(self):
        """The sentences that a recording keeps."""
        if not self.counts:
            return []
        most = sorted(self.counts.items(), key=lambda entry: -entry[1])[:LINES]
        lines = "; ".join(f"{file}:{line} {count} × {rule}" for (file, line, rule, _), count in most)
        more = f" and {len(self.counts) - LINES} more" if len(self.counts) > LINES else ""
        return [f"{self.total} reads of values that were not computed: {lines}{more}"]

    def write(self):
        """Writes what was counted."""
        if os.getpid() != self.pid or not self.path:
            return
        try:
            rows = [
                {"file": file, "line": line, "rule": rule, "taken": _rules.RULES[rule][1], "dtype": dtype, "count": count}
                for (file, line, rule, dtype), count in sorted(self.counts.items(), key=lambda entry: -entry[1])
            ]
            with open(self.path + ".new", "w") as file:
                json.dump({"version": 1, "reads": rows}, file)
            os.replace(self.path + ".new", self.path)
        except OSError as error:
            complain(error)


def _whose(name):
    """0: the program's. 1: of a package. 2: PyTorch's, Python's and our own."""
    if name.startswith("<") or name.startswith(HERE) or f"{os.sep}torch{os.sep}" in name:
        return 2
    if f"{os.sep}site-packages{os.sep}" in name or f"{os.sep}dist-packages{os.sep}" in name:
        return 1
    if name.startswith(sysconfig.get_paths()["stdlib"] + os.sep):
        return 2
    return 0
