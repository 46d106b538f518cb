"""What is known of the values that lie on a card that is not there.

Kernels do nothing under the stand-in, so that nothing is computed. What a program needs to go on its way (masks, indices, counts,
lengths) is small, and comes from the host, from constants and from each other: it is computed here, on the processor, when somebody
reads it and not before.

A :class:`Value` is the content of a storage. The table says which storages have one. It holds no tensor of the card's and so prolongs
no memory's life.
"""

import torch

from ._threads import aside, makes_gradients

LIMIT = 1 << 20
"""Elements of the largest storage that is followed. What decides shapes is smaller, but for graphs of millions of edges."""
LIMIT_FLOATS = 1 << 16
"""The same for floating-point numbers that a program copies or fills: weights are not followed."""
DEPTH = 48
"""Operations that may wait to be computed behind a value; one more, and they are."""
SWEEP = 512
"""Values that come to the table between two looks for those whose storage is gone."""

identity = getattr(torch._C, "_storage_id", None) or (lambda tensor: tensor.untyped_storage()._cdata)
"""Which storage a tensor lies in, without Python's object for that: once it is there, PyTorch 2.11 counts it as one more owner, and autograd
adds up gradients in place only where their storage has one. So of a tensor of which nothing is known, nothing else may be asked."""
_storage = torch.UntypedStorage
_is_captured = getattr(torch._C, "_cuda_isCurrentStreamCapturing", bool)


class Value:
    """The content of a storage, as a flat tensor of the processor's; computed when it is asked for.

    Never changed: an operation in place makes a new one.
    """

    __slots__ = ("_flat", "_make", "assumed", "depth")

    def __init__(self, make, behind, assumed):
        self._flat, self._make = None, make
        # The rule that stands behind it; none where the program's own numbers do.
        self.assumed = assumed
        self.depth = 1 + max((value.depth for value in behind), default=0)
        if self.depth > DEPTH:
            self.flat()

    @staticmethod
    def of(flat, assumed=None):
        """A value that is there."""
        value = Value.__new__(Value)
        value._flat, value._make, value.assumed, value.depth = flat, None, assumed, 0
        return value

    def flat(self):
        """The content, one element behind the other."""
        if self._flat is None:
            with aside():
                self._flat = self._make()
            self._make = None
            self.depth = 0
        return self._flat


class View:
    """A tensor's part of a storage's content."""

    __slots__ = ("value", "dtype", "shape", "strides", "offset")

    def __init__(self, value, tensor):
        self.value = value
        self.dtype = tensor.dtype
        self.shape, self.strides, self.offset = tensor.size(), tensor.stride(), tensor.storage_offset()

    def tensor(self):
        """The part, on the processor. It may share memory with the value: not to be written."""
        return part(self.value.flat(), self)


def part(flat, view):
    """The elements of a flat content that a view names."""
    if flat.dtype != view.dtype:
        flat = flat.view(view.dtype)
    return flat.as_strided(view.shape, view.strides, view.offset)


class _Held:
    __slots__ = ("value", "weak", "version", "fixed")

    def __init__(self, value, weak, version, fixed):
        self.value, self.weak, self.version, self.fixed = value, weak, version, fixed


class Table:
    """Values by storage."""

    def __init__(self):
        # By the storage's own identity, which a weak reference keeps from being given to another.
        self.held = {}
        self.get = self.held.get
        self.fresh = 0

    def look(self, tensor):
        """The value of the storage that a tensor lies in; ``None`` where it is not known."""
        held = self.get(identity(tensor))
        if held is None:
            return None
        if held.version is not None:
            version = _version(tensor)
            if version != held.version:
                if held.fixed or version != held.version + 1:
                    # Something wrote there that we have not seen, or the tensor counts for itself.
                    return None
                held.version = version
            held.fixed = True
        return held.value

    def view(self, tensor):
        """What is known of a tensor; ``None`` where nothing is."""
        value = self.look(tensor)
        return None if value is None else View(value, tensor)

    def put(self, tensor, value, fixed=True):
        """Holds a value for the storage that a tensor lies in.

        Where ``fixed`` is false, PyTorch will count up the version of the tensor once more for what is noted here, or not: the first
        look decides.
        """
        if _is_captured():
            # It runs when the graph is replayed, as often as that is.
            self.drop(tensor)
            return
        storage = tensor.untyped_storage()
        held = self.get(storage._cdata)
        if held is not None:
            held.value, held.version, held.fixed = value, _version(tensor), fixed
            return
        self.held[storage._cdata] = _Held(value, storage._weak_ref(), _version(tensor), fixed)
        self.fresh += 1
        if self.fresh >= SWEEP + len(self.held) // 2:
            self._sweep()

    def drop(self, tensor):
        """Something wrote there that is not known."""
        held = self.held.pop(identity(tensor), None)
        if held is not None:
            _storage._free_weak_ref(held.weak)

    def _sweep(self):
        self.fresh = 0
        for key in [key for key, held in self.held.items() if _storage._expired(held.weak)]:
            _storage._free_weak_ref(self.held.pop(key).weak)


def _version(tensor):
    # Tensors of inference mode have none.
    return None if tensor.is_inference() else tensor._version


def followed(tensor, limit):
    """Whether what is written to a tensor is followed: its storage has at most so many elements, and it may not be a gradient's."""
    if tensor.numel() > limit or is_gradient(tensor):
        return False
    return tensor.untyped_storage().nbytes() <= limit * tensor.element_size()


def is_gradient(tensor):
    """Whether a tensor may be a gradient on its way, which autograd adds to in place where it is the only owner of its storage."""
    return makes_gradients() and tensor.is_floating_point()


def whole(tensor):
    """Whether a tensor covers its storage, every element once."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
