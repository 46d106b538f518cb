"""What ranks tell each other, where a card is not there.

The stand-in carries what it knows of small data between the ranks of a program (``ncclAllGather`` and the like), but kernels, which
compute nothing, make it forget. What is computed here is therefore put on the card before a collective, by an ordinary copy, and what
came of it is taken back behind it.
"""

import ctypes

import torch
from torch import library as dispatcher

from . import _threads
from ._complaint import complain
from ._shadow import Value, is_gradient

LIMIT = 64 << 10
"""Bytes of a tensor that the stand-in carries."""
PATIENCE = 30_000
"""Milliseconds that a result of integers is waited for, right behind the call. After that it is not known, and the program goes on."""

GIVEN = {
    "_allgather_base_": (1, 0),
    "_reduce_scatter_base_": (1, 0),
    "allgather_": (1, 0),
    "allgather_coalesced_": (1, 0),
    "allgather_into_tensor_coalesced_": (1, 0),
    "allreduce_": (0, 0),
    "allreduce_coalesced_": (0, 0),
    "alltoall_": (1, 0),
    "alltoall_base_": (1, 0),
    "broadcast_": (0, 0),
    "gather_": (1, 0),
    "recv_": (None, 0),
    "recv_any_source_": (None, 0),
    "reduce_": (0, 0),
    "reduce_scatter_": (1, 0),
    "reduce_scatter_tensor_coalesced_": (1, 0),
    "scatter_": (1, 0),
    "send": (0, None),
}
"""By operation: where what a rank gives stands among the arguments, and where what it gets."""


class Collectives:
    """Kernels in front of PyTorch's, for as long as :class:`_kernels.Kernels` are there."""

    def __init__(self, table):
        self.table, self.registered = table, None
        program = ctypes.CDLL(None)
        self.put_on_card = program.cudaMemcpy
        self.put_on_card.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.known = program.vramlab_known
        self.known.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
        self.known.restype = None

    def register(self):
        """Once ``torch.distributed`` is there, whose operations they are."""
        self.registered = dispatcher.Library("c10d", "IMPL")
        for name, (given, got) in GIVEN.items():
            op = getattr(getattr(torch.ops.c10d, name, None), "default", None)
            if op is not None:
                self.registered.impl(name, self._collective(op, given, got), _threads.KEY, with_keyset=True)

    def _collective(self, op, given, got):
        call = op._handle.redispatch_boxed

        def kernel(keys, *args):
            try:
                for tensor in _tensors(args[given]) if given is not None else ():
                    self._give(tensor)
            except Exception as error:
                complain(error)
            out = call(keys & _threads.BELOW, *args)
            try:
                for tensor in _tensors(args[got]) if got is not None else ():
                    self._take(tensor)
            except Exception as error:
                complain(error)
            return out

        return kernel

    def _give(self, tensor):
        """Puts what is known of a tensor on the card."""
        if _bytes(tensor) > LIMIT:
            return
        view = self.table.view(tensor)
        if view is None or view.value.assumed:
            return
        with _threads.aside():
            values = view.tensor().contiguous()
            self.put_on_card(tensor.data_ptr(), values.data_ptr(), _bytes(tensor), 1)

    def _take(self, tensor):
        """Takes from the card what is known of a tensor."""
        size = _bytes(tensor)
        if not size:
            return
        old, known = None, False
        if size <= LIMIT and not is_gradient(tensor):
            bytes_, which = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
            patience = PATIENCE if not tensor.dtype.is_floating_point else 0
            self.known(tensor.data_ptr(), bytes_, which, size, patience)
            known = any(which.raw)
        if not known:
            self.table.drop(tensor)
            return
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        old = self.table.look(tensor)
        with _threads.aside():
            values = torch.frombuffer(bytes_, dtype=tensor.dtype)
            flat = torch.zeros(count, dtype=tensor.dtype, device="cpu") if old is None else old.flat().clone()
            at = tensor.storage_offset()
            flat[at : at + tensor.numel()] = values
        assumed = None if all(which.raw) else "item"
        if old is not None and count != tensor.numel():
            assumed = assumed or old.assumed
        self.table.put(tensor, Value.of(flat, assumed), fixed=False)


def _bytes(tensor):
    """Bytes of a tensor of the card without gaps; 0 for any other."""
    if not tensor.is_cuda or not tensor.is_contiguous() or tensor.is_complex():
        return 0
    return tensor.numel() * tensor.element_size()


def _tensors(given):
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for one in given:
            yield from _tensors(one)
