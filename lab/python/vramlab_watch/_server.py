"""Hands what happened to whoever watches, over a socket that only its owner can open."""

import atexit
import contextlib
import gc
import json
import os
import pickle
import select
import socket
import struct
import sys
import tempfile
import threading
import time

from ._complaint import complain

ABSENT = bool(os.environ.get("VRAMLAB_CARD"))
"""The card is not there: the program's time is nobody's, so it waits at ends of steps until all was looked at."""
BACKLOG = 32 << 20
"""Bytes that a slow viewer may be behind; then it loses events, and gets the whole state when it has caught up."""
FASTEST, SLOWEST = 0.5 if ABSENT else 0.1, 4.0
"""Seconds between two looks."""
GAP = 0.2
"""Seconds between two looks that the program waits for: PyTorch's ring has room for more than any program asks for in them, and a look
costs as much as there are blocks, however little happened."""
SHARE = float(os.environ.get("VRAMLAB_WATCH_SHARE", 0.25 if ABSENT else 0.005))
"""Part of the time that looks may take, during which no other Python code runs. A program with more events than can be
looked at in it is seen in windows: the state at each look is exact, and what came between two windows is said to be lost."""
MOST = 0.01
"""The part that they take at most, where looks are so long that they would be more than :data:`SLOWEST` apart."""
LOOK, LEAVE = b"l", b"x"
"""What wakes the thread: a look that the program waits for, and its end."""
LONGEST = 30.0
"""Seconds that a program on a card that is not there waits for a viewer at most."""
last_words = []
"""Functions that give sentences to be said when the program ends."""


def folder():
    """Where the socket lies: a folder of the user's own."""
    given = os.environ.get("VRAMLAB_WATCH_DIR")
    if given:
        return given
    base = os.environ.get("XDG_RUNTIME_DIR") or os.path.join(tempfile.gettempdir(), f"vramlab-{os.getuid()}")
    return os.path.join(base, "vramlab-watch", str(os.getpid()))


class Server(threading.Thread):
    """Waits for viewers; looks only while there is one."""

    def __init__(self, recorder):
        super().__init__(name="vramlab-watch", daemon=True)
        self.recorder = recorder
        self.viewers = []
        self.pid = os.getpid()
        self.done = threading.Event()
        self.met = threading.Event()
        # Looks that the program waits for, and those of them that viewers are being told of.
        self.awaited, self.looked = [], []
        self.caught_up = 0.0
        self.wake, self.awoken = socket.socketpair()
        self.path = os.path.join(folder(), f"{self.pid}.sock")
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        if os.stat(os.path.dirname(self.path)).st_uid != os.getuid():
            raise PermissionError(f"{os.path.dirname(self.path)} belongs to somebody else")
        os.chmod(os.path.dirname(self.path), 0o700)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Under another name until it listens: a viewer takes a socket that refuses for one of a program that is gone.
        early = os.path.join(os.path.dirname(self.path), f"{self.pid}-new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(early)
        # The mask holds for this one call: nobody else may open it, not even for a moment.
        mask = os.umask(0o177)
        try:
            self.socket.bind(early)
        finally:
            os.umask(mask)
        self.socket.listen(8)
        os.rename(early, self.path)
        self.socket.setblocking(False)
        atexit.register(self.leave)
        os.register_at_fork(after_in_child=self._forked)

    def run(self):
        try:
            self._serve()
        except Exception as error:
            complain(error)
        finally:
            for viewer in self.viewers:
                viewer.close()
            self._remove()
            self.done.set()

    def _serve(self):
        leaving, due = False, 0.0
        while not leaving:
            wait = max(0.0, due - time.monotonic()) if self.viewers else None
            writers = [viewer.socket for viewer in self.viewers if viewer.behind]
            readers = [self.socket, self.awoken] + [viewer.socket for viewer in self.viewers]
            readable, writable, _ = select.select(readers, writers, [], wait)
            leaving = self.awoken in readable and LEAVE in self.awoken.recv(64)
            if self.socket in readable:
                self._welcome()
            for viewer in self.viewers:
                if viewer.socket in readable:
                    viewer.read()
                if viewer.socket in writable:
                    viewer.write()
            if self.viewers and (leaving or self.awaited or time.monotonic() >= due):
                began = time.monotonic()
                # Those alone that wait already: behind the look others go on.
                waiting = len(self.awaited)
                whole, frame = self._look(self._whole())
                self.looked += self.awaited[:waiting]
                del self.awaited[:waiting]
                # It need not wait until that is handed on as well.
                self._let_go()
                self._tell(whole, frame)
                due = time.monotonic() + _pause(time.monotonic() - began)
            if any(viewer.gone for viewer in self.viewers):
                self.viewers = [viewer for viewer in self.viewers if not viewer.gone]
                if not self.viewers and not leaving:
                    self._say_that_it_goes_on()
            # Whoever began to wait before the last viewer was gone waits for nobody.
            while self.awaited and not self.viewers:
                self.awaited.pop().set()
            self._let_go()
        self._farewell()

    def _welcome(self):
        try:
            viewer = Viewer(self.socket.accept()[0])
        except OSError:
            return
        if not viewer.is_ours():
            viewer.close()
            return
        viewer.send(_frame({"hello": self.recorder.hello}))
        viewer.send(self._look(True)[1])
        # Those that were there have everything once more: the state begins anew for all.
        for other in self.viewers:
            other.lost = True
        self.viewers.append(viewer)
        self.recorder.watched = True
        self.met.set()

    def meet(self, seconds):
        """Waits, on the program's thread, until somebody watches."""
        self.met.wait(seconds)

    def catch_up(self, now):
        """Waits, on the program's thread, until all that happened was looked at: ``now``, or where the last time is a while ago."""
        if not self.viewers or self.done.is_set() or os.getpid() != self.pid:
            return
        if not now and self.recorder.is_roomy() and time.monotonic() - self.caught_up < GAP:
            return
        seen = threading.Event()
        self.awaited.append(seen)
        self.wake.send(LOOK)
        seen.wait(LONGEST)
        self.caught_up = time.monotonic()

    def _let_go(self):
        """Lets the program go on, once no viewer is far behind."""
        if not self.looked or any(len(viewer.behind) > BACKLOG // 4 for viewer in self.viewers):
            return
        self.recorder.forget()
        while self.looked:
            self.looked.pop().set()

    def _whole(self):
        """Whether somebody lost events and has caught up."""
        return any(viewer.lost and not viewer.behind for viewer in self.viewers)

    def _look(self, whole):
        """Whether a look was at the whole state, and the message that tells it."""
        with _nothing_collected():
            return self._seen(whole)

    def _seen(self, whole):
        part, snapshot = self.recorder.look(whole)
        return part["part"]["whole"], _frame(part, snapshot)

    def _tell(self, whole, frame):
        for viewer in self.viewers:
            if viewer.lost and (not whole or viewer.behind):
                continue
            viewer.lost = False
            viewer.send(frame)

    def _farewell(self):
        for viewer in self.viewers:
            viewer.send(_frame({"end": True, "notices": [sentence for words in last_words for sentence in words()]}))
        until = time.monotonic() + (LONGEST if ABSENT else 1.0)
        while time.monotonic() < until and any(viewer.behind and not viewer.gone for viewer in self.viewers):
            writers = [viewer.socket for viewer in self.viewers if viewer.behind and not viewer.gone]
            for ready in select.select([], writers, [], 0.1)[1]:
                next(viewer for viewer in self.viewers if viewer.socket is ready).write()

    def _say_that_it_goes_on(self):
        """On a card that is not there somebody should know of a program that nobody looks at: nothing else comes of it."""
        if ABSENT:
            print(
                f"vramlab: nobody watches this program any more (process {self.pid}); it goes on. Join it again: "
                f"vramlab watch --attach {self.pid}. End it: kill {self.pid}",
                file=sys.stderr,
                flush=True,
            )

    def leave(self):
        """Hands on what is left, and ends."""
        if os.getpid() != self.pid:
            return
        try:
            self.wake.send(LEAVE)
            self.done.wait(LONGEST if ABSENT else 2.0)
        except Exception:
            pass

    def _forked(self):
        """A forked child (a data loader's worker) is not this process: it lets go of everything."""
        try:
            self.socket.close()
            self.wake.close()
            self.awoken.close()
            for viewer in self.viewers:
                viewer.socket.close()
        except Exception:
            pass

    def _remove(self):
        for remove, path in ((os.unlink, self.path), (os.rmdir, os.path.dirname(self.path))):
            try:
                remove(path)
            except OSError:
                pass


@contextlib.contextmanager
def _nothing_collected():
    """Keeps Python's collector of garbage away while a look makes and drops its many small objects. It would go through them several times,
    and through the program's own with them: a tenth of a second. And what the program left to be collected is collected when it would have been."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _pause(cost):
    """Seconds until the next look, after one that took ``cost`` with handing on what it saw."""
    return max(FASTEST, min(cost / SHARE, max(SLOWEST, cost / MOST)))


def _frame(control, snapshot=None):
    """A message: what it is, as JSON, and the snapshot that it is about, as PyTorch would write it to a file."""
    head = json.dumps(control).encode()
    data = b"" if snapshot is None else pickle.dumps(snapshot, protocol=4)
    return struct.pack("<4sII", b"VRW1", len(head), len(data)) + head + data


class Viewer:
    """One who watches. Never waited for."""

    def __init__(self, connection):
        self.socket = connection
        self.socket.setblocking(False)
        self.behind = bytearray()
        self.lost = False
        self.gone = False

    def is_ours(self):
        """The other side runs as the same user."""
        if not hasattr(socket, "SO_PEERCRED"):
            return True
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return struct.unpack("3i", credentials)[1] == os.getuid()

    def send(self, frame):
        if len(self.behind) + len(frame) > BACKLOG and self.behind:
            self.lost = True
            return
        self.behind += frame
        self.write()

    def write(self):
        try:
            while self.behind:
                sent = self.socket.send(memoryview(self.behind)[: 1 << 20])
                del self.behind[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.gone = True

    def read(self):
        """Viewers say nothing; what can be read is their end."""
        try:
            if not self.socket.recv(4096):
                self.gone = True
        except BlockingIOError:
            pass
        except OSError:
            self.gone = True

    def close(self):
        try:
            self.socket.close()
        except OSError:
            pass
