"""The operations that are computed on the processor as well, where a card is not there.

PyTorch's own kernel still runs, and so takes the memory that it would take. What a kernel notes must not harm the program: where it
fails, the value is not known.

Most are registered for a dispatch key that nobody uses, which is switched on for the program's own threads and off while autograd runs
(:mod:`_threads`): there nearly every call is about gradients, and a kernel in Python costs several microseconds. Operations that read are
registered for CUDA itself: they are rare, and must not be missed.
"""

import ctypes
import os
import warnings

import torch
from torch import library as dispatcher

from . import _rules, _server, _threads
from ._complaint import complain
from ._shadow import LIMIT, LIMIT_FLOATS, Table, Value, View, followed, identity, is_gradient, part, whole

PURE = """
    add.Tensor sub.Tensor mul.Tensor div.Tensor div.Tensor_mode floor_divide remainder.Tensor remainder.Scalar_Tensor fmod.Tensor fmod.Scalar
    pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar rsub.Tensor neg abs sign sgn square sqrt exp log log2 floor ceil round trunc reciprocal
    bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_not bitwise_left_shift.Tensor bitwise_right_shift.Tensor
    __lshift__.Scalar __lshift__.Tensor __rshift__.Scalar __rshift__.Tensor
    logical_and logical_or logical_xor logical_not
    minimum maximum clamp clamp.Tensor clamp_min clamp_max clamp_min.Tensor clamp_max.Tensor
    where.self cat stack index.Tensor index_select gather take flip roll tril triu tril_indices triu_indices
    sum.dim_IntList prod prod.dim_int mean.dim amax amin max min cumsum cumprod bincount count_nonzero.dim_IntList
    searchsorted.Tensor searchsorted.Scalar bucketize.Tensor isin.Tensor_Tensor isin.Tensor_Scalar isin.Scalar_Tensor
    repeat_interleave.Tensor masked_select nonzero_static cummax cummin histc
""".split()
"""Operations whose result is computed where all that they are given is known."""

COMPARED = {
    "compare": "eq.Tensor eq.Scalar isnan".split(),
    "keep": "ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar".split(),
    "all": "all all.dim all.dims".split(),
    "any": "any any.dim any.dims".split(),
}
"""The same, with a rule for what is not known."""

PICKED = {"topk": (2, -1), "argmax": (1, None), "argmin": (1, None), "max.dim": (1, 0), "min.dim": (1, 0), "multinomial": (None, -1)}
"""Operations that pick indices: where the dimension stands among what they are given, and which it is otherwise."""

DRAWN = "random_ random_.from random_.to uniform_ normal_ bernoulli_.float bernoulli_.Tensor exponential_ randperm.generator_out".split()
"""Random numbers."""

MADE = "arange.start_out linspace.out eye.out eye.m_out logspace.out".split()
"""Operations that fill ``out`` with what follows from numbers."""

NOT_CHANGED = "set_ resize_ copy_ fill_ zero_ _amp_update_scale_ _fill_mem_eff_dropout_mask_".split()
"""Operations in place that are not computed as the others are."""

FUSED = "_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_".split()
"""Optimizers' kernels that write without telling versions."""

_UNKNOWN = object()
_BELOW = _threads.BELOW
_PLAIN = {torch.Tensor, torch.nn.Parameter}
_NUMBERS = (int, float, bool, complex)


class Kernels:
    """What is registered, with what it knows."""

    def __init__(self, reads, skip_steps=(range(0),)):
        self.reads = reads
        self.table = Table()
        # Of each optimizer, in the order in which a scaler's step comes to them; and what it has found of which in this step.
        self.skip_steps, self.updates, self.founds = skip_steps, 0, []
        self.seeds = 0
        self.fused = set()
        # What nms() keeps, while it runs.
        self.kept = None
        # Inside a kernel that asks the card for what we have told it already.
        self.quiet = False
        self.answer = _answer()
        self.libraries = {}

    # ------------------------------------------------------------------ registration

    def register(self):
        """Puts every kernel in front of PyTorch's."""
        everything = self.libraries["_"] = dispatcher.Library("_", "IMPL")
        everything.fallback(dispatcher.fallthrough_kernel, _threads.KEY)
        with warnings.catch_warnings():
            # PyTorch says once that a kernel has a new one in front of it.
            warnings.simplefilter("ignore")
            for name in PURE:
                self._put_in_front(name, self._pure)
            for rule, names in COMPARED.items():
                for name in names:
                    self._put_in_front(name, self._compared, rule)
            for name, (at, otherwise) in PICKED.items():
                self._put_in_front(name, self._picked, at, otherwise)
            self._put_in_front("sort.stable", self._sorted)
            for name in DRAWN:
                self._put_in_front(name, self._drawn)
            for name in MADE:
                self._put_in_front(name, self._made)
            for name in ("zero_", "fill_.Scalar", "fill_.Tensor"):
                self._put_in_front(name, self._filled)
            self._put_in_front("copy_", self._copied)
            for name in _in_place():
                self._put_in_front(name, self._changed)
            self._put_in_front("resize_", self._resized)
            for name in FUSED:
                for overload in ("", ".tensor_lr"):
                    self._put(name + overload, self._stepped)
            self._put("_local_scalar_dense", self._read)
            self._put("equal", self._equal)
            self._put("nonzero", self._nonzero)
            for name in ("_unique2", "unique_consecutive", "unique_dim"):
                self._put(name, self._unique)
            self._put("_amp_foreach_non_finite_check_and_unscale_", self._unscaled)
            self._put("_amp_update_scale_", self._scaled)

    def register_vision(self, _module=None):
        """The same for torchvision's."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._put("nms", self._nms, space="torchvision")
        except Exception as error:
            _failed(error)

    def register_collectives(self, distributed):
        """The same for what ranks tell each other."""
        try:
            if distributed.is_available():
                from ._collectives import Collectives

                self.collectives = Collectives(self.table)
                self.collectives.register()
        except Exception as error:
            complain(error)

    def _put(self, name, make, *more, space="aten"):
        """In front of the CUDA kernel alone."""
        op = _operation(space, name)
        if op is None:
            return
        if not hasattr(dispatcher, "get_kernel"):
            # Before PyTorch 2.9 a kernel that is replaced can't be called any more.
            self._put_in_front(name, make, *more, space=space)
            return
        try:
            call = dispatcher.get_kernel(op, "CUDA").call_boxed
        except RuntimeError:
            return
        self._library(space).impl(name, make(op, call, *more), "CUDA", with_keyset=True)

    def _put_in_front(self, name, make, *more, space="aten"):
        op = _operation(space, name)
        if op is not None:
            self._library(space).impl(name, make(op, op._handle.redispatch_boxed, *more), _threads.KEY, with_keyset=True)

    def _library(self, space):
        library = self.libraries.get(space)
        if library is None:
            library = self.libraries[space] = dispatcher.Library(space, "IMPL")
        return library

    # ------------------------------------------------------------------ kernels that give a new tensor

    def _pure(self, op, call):
        get, follow, at = self.table.get, self._follow, _tensors(op)

        def kernel(keys, *args, **kwargs):
            of = _with_numbers(op, at, args) if at else op
            out = call(keys & _BELOW, *args, **kwargs) if of is op else _threads.again(of, args, kwargs)
            try:
                first = args[0]
                if type(first) is list:
                    first = first[0]
                # Nearly always an activation: nothing is known of it, and so of the result.
                if type(first) in _PLAIN and get(identity(first)) is None and first.is_cuda:
                    return out
                if len(at) > 1:
                    second = args[at[1]]
                    if type(second) in _PLAIN and second.is_cuda and get(identity(second)) is None:
                        return out
                follow(of, args, kwargs, out)
            except Exception as error:
                _failed(error)
            return out

        return kernel

    def _compared(self, op, call, rule):
        answer, at = _rules.false if rule in ("compare", "any") else _rules.true, _tensors(op)
        same = {"compare": op.__name__.startswith("eq"), "keep": op.__name__.startswith(("ne", "lt", "gt"))}.get(rule, False)

        def kernel(keys, *args, **kwargs):
            of = _with_numbers(op, at, args) if at else op
            out = call(keys & _BELOW, *args, **kwargs) if of is op else _threads.again(of, args, kwargs)
            if _is_of_card(out) and not self._follow(of, args, kwargs, out):
                make = answer
                if rule == "keep" and not out.dim():
                    # One number is no filter: it reads as it would by itself, so that a norm is not below zero.
                    self._as_zero(of, args, kwargs, out)
                    return out
                if same and len(args) > 1 and args[0] is args[1]:
                    # x == x: how isfinite() and isnan() ask.
                    make = _rules.true if rule == "compare" else _rules.false
                self._rule(rule, [(out, lambda out: make(out))])
            return out

        return kernel

    def _picked(self, op, call, at, otherwise):
        def kernel(keys, *args, **kwargs):
            out = call(keys & _BELOW, *args, **kwargs)
            if _is_of_card(args[0]) and not self._follow(op, args, kwargs, out):
                dim = otherwise if at is None else args[at] if len(args) > at else kwargs.get("dim", otherwise)
                among = args[0].numel() if dim is None else args[0].size(dim) if args[0].dim() else 1
                indices = out[1] if isinstance(out, (tuple, list)) else out
                # A dimension that is reduced away: the last of the others is as good.
                along = dim if dim is not None and indices.dim() == args[0].dim() else -1
                self._rule("pick", [(indices, lambda out: _rules.spread(out.shape, along, among))])
            return out

        return kernel

    def _sorted(self, op, call):
        def kernel(keys, *args, **kwargs):
            out = call(keys & _BELOW, *args, **kwargs)
            if _is_of_card(args[0]) and not self._follow(op, args, kwargs, out):
                dim = args[1] if len(args) > 1 and type(args[1]) is int else kwargs.get("dim", -1)
                self._rule("order", [(out[1], lambda out: _rules.as_they_lie(out.shape, dim))])
            return out

        return kernel

    def _follow(self, op, args, kwargs, out):
        """Computes what an operation gives, later, where all that it is given is known. Whether it is."""
        try:
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            if any(one.numel() > LIMIT or not _is_of_card(one) or is_gradient(one) for one in outs):
                return False
            given = _Given()
            args, kwargs = self._freeze(args, given), self._freeze(kwargs, given)
            if args is _UNKNOWN or kwargs is _UNKNOWN:
                return False
            if len(outs) == 1:
                results = _Once(lambda: [op(*_thaw(args), **_thaw(kwargs))])
            else:
                results = _Once(lambda: op(*_thaw(args), **_thaw(kwargs)))
            for index, one in enumerate(outs):
                self.table.put(one, _laid(lambda index=index: results()[index], one, given.parts, given.assumed))
            return True
        except Exception as error:
            _failed(error)
            return False

    def _rule(self, rule, outs):
        """A rule stands for what is not known."""
        try:
            for out, make in outs:
                if out.numel() <= LIMIT:
                    like = _Like(out)
                    self.table.put(out, _laid(lambda make=make, like=like: make(like), out, (), rule))
        except Exception as error:
            _failed(error)

    def _as_zero(self, op, args, kwargs, out):
        """Computes what an operation gives where the numbers that are not known are zero."""
        try:
            zero = [torch.zeros(one.shape, dtype=one.dtype, device="cpu") if _is_of_card(one) and self._known(one)[0] is None else one for one in args]
            given = _Given("item")
            frozen, named = self._freeze(zero, given), self._freeze(kwargs, given)
            if frozen is not _UNKNOWN and named is not _UNKNOWN:
                self.table.put(out, _laid(lambda: op(*_thaw(frozen), **_thaw(named)), out, given.parts, "item"))
        except Exception as error:
            _failed(error)

    def _freeze(self, given, into):
        """What an operation is given, without the card's tensors; ``_UNKNOWN`` where one of them is not known."""
        if isinstance(given, torch.Tensor):
            if given.is_cuda:
                view = self.table.view(given)
                if view is None:
                    return _UNKNOWN
                into.parts.append(view.value)
                into.assumed = into.assumed or view.value.assumed
                return view
            with _threads.aside():
                return given.detach().clone()
        if isinstance(given, (tuple, list)):
            frozen = [self._freeze(one, into) for one in given]
            return _UNKNOWN if any(one is _UNKNOWN for one in frozen) else frozen
        if isinstance(given, dict):
            frozen = {key: self._freeze(one, into) for key, one in given.items()}
            return _UNKNOWN if any(one is _UNKNOWN for one in frozen.values()) else frozen
        if isinstance(given, torch.device):
            return torch.device("cpu")
        if isinstance(given, torch.Generator):
            return None
        return given

    # ------------------------------------------------------------------ kernels that write

    def _changed(self, op, call):
        get, at = self.table.get, _tensors(op)

        def kernel(keys, *args, **kwargs):
            of = _with_numbers(op, at, args) if at else op
            changed, old = args[0], None
            try:
                held = get(identity(changed))
                if held is not None:
                    old = self.table.look(changed)
            except Exception:
                # No storage of its own: a sparse tensor.
                held = None
            out = call(keys & _BELOW, *args, **kwargs) if of is op else _threads.again(of, args, kwargs)
            if held is not None:
                try:
                    given = _Given()
                    frozen, named = self._freeze(args[1:], given), self._freeze(kwargs, given)
                    if old is None or frozen is _UNKNOWN or named is _UNKNOWN:
                        self.table.drop(changed)
                    else:
                        self._write(changed, old, lambda view: of(view, *_thaw(frozen), **_thaw(named)), given)
                except Exception as error:
                    _failed(error)
                    self.table.drop(changed)
            return out

        return kernel

    def _filled(self, op, call):
        def kernel(keys, self_, *args):
            # Nothing is held of what is larger.
            if self_.numel() > LIMIT or not _is_of_card(self_):
                return call(keys & _BELOW, self_, *args)
            given = _Given()
            change = self._prepared(self_, given, LIMIT_FLOATS if self_.is_floating_point() else LIMIT)
            out = call(keys & _BELOW, self_, *args)
            frozen = self._freeze(args, given) if change else _UNKNOWN
            self._finish(change, self_, None if frozen is _UNKNOWN else lambda view: op(view, *_thaw(frozen)))
            return out

        return kernel

    def _drawn(self, op, call):
        takes_out = op.name().endswith("out")

        def kernel(keys, *args, **kwargs):
            tensor = kwargs["out"] if takes_out else args[0]
            given = _Given("random")
            # A weight is not followed.
            limit = LIMIT_FLOATS if tensor.is_floating_point() and tensor.dim() != 1 else LIMIT
            change = self._prepared(tensor, given, limit)
            out = call(keys & _BELOW, *args, **kwargs)
            if takes_out:
                # The call may have given it memory.
                change = self._prepared(tensor, given, limit)
            if change is None:
                return out
            frozen = self._freeze(args if takes_out else args[1:], given)
            named = {name: one for name, one in kwargs.items() if name not in ("out", "generator")}
            self.seeds += 1
            seed = self.seeds

            def draw(view):
                generator = torch.Generator(device="cpu").manual_seed(seed)
                words = [one for one in _thaw(frozen) if one is not None]
                if takes_out:
                    op(*words, **named, generator=generator, out=view)
                else:
                    op(view, *words, **named, generator=generator)

            self._finish(change, tensor, None if frozen is _UNKNOWN else draw)
            return out

        return kernel

    def _made(self, op, call):
        def kernel(keys, *args, **kwargs):
            tensor = kwargs["out"]
            given = _Given()
            out = call(keys & _BELOW, *args, **kwargs)
            # The call may have given it memory.
            change = self._prepared(tensor, given, LIMIT)
            words = self._freeze(args, given)
            named = {name: one for name, one in kwargs.items() if name != "out"}
            self._finish(change, tensor, None if words is _UNKNOWN else lambda view: op(*words, **named, out=view))
            return out

        return kernel

    def _copied(self, op, call):
        get = self.table.get

        def kernel(keys, self_, source, non_blocking=False):
            if type(source) in _NUMBERS:
                given = _Given()
                prepared = self._prepared(self_, given, LIMIT)
                out = _threads.again(torch.ops.aten.copy_, (self_, source), {})
                self._finish(prepared, self_, lambda view: view.fill_(source))
                return out
            if not _is_of_card(self_):
                out = call(keys & _BELOW, self_, source, non_blocking)
                if type(self_) is torch.Tensor and self_.device.type == "cpu" and _is_of_card(source):
                    self._fetched(self_, source)
                return out
            if type(source) in _PLAIN and source.is_cuda and get(identity(source)) is None:
                # Nearly always weights or activations that change their type.
                out = call(keys & _BELOW, self_, source, non_blocking)
                self.table.drop(self_)
                return out
            copy, given = _UNKNOWN, _Given()
            change = self._prepared(self_, given, LIMIT)
            if change is not None:
                try:
                    if source.is_cuda:
                        copy = self._freeze(source, given)
                    elif type(source) in _PLAIN and not (source.is_floating_point() and source.numel() > LIMIT_FLOATS):
                        # The program may change it as soon as we return.
                        with _threads.aside():
                            copy = source.detach().to(self_.dtype, copy=True)
                except Exception as error:
                    _failed(error)
            out = call(keys & _BELOW, self_, source, non_blocking)
            self._finish(change, self_, None if copy is _UNKNOWN else lambda view: view.copy_(_thaw(copy)))
            return out

        return kernel

    def _prepared(self, tensor, given, limit):
        """Before a tensor is written: what it is part of. ``None`` where that is not followed."""
        try:
            if not _is_of_card(tensor) or not followed(tensor, limit):
                return None
            if whole(tensor):
                return None, given
            old = self.table.look(tensor)
            if old is None:
                # Nobody wrote there: it is what the program happens to find.
                given.assumed = given.assumed or "item"
            return old, given
        except Exception as error:
            _failed(error)
            return None

    def _finish(self, prepared, tensor, change):
        """After it was written. ``change`` does the same to a view of the processor's; ``None``: what was written is not known."""
        try:
            if prepared is None or change is None:
                self.table.drop(tensor)
            else:
                self._write(tensor, prepared[0], change, prepared[1])
        except Exception as error:
            _failed(error)

    def _resized(self, op, call):
        def kernel(keys, self_, *args, **kwargs):
            old = self.table.look(self_) if _is_of_card(self_) else None
            out = call(keys & _BELOW, self_, *args, **kwargs)
            try:
                count = self_.untyped_storage().nbytes() // self_.element_size()
                if old is None or count > LIMIT:
                    self.table.drop(self_)
                else:
                    # What was there is there, and behind it what the program happens to find.
                    with _threads.aside():
                        before = old.flat()
                        flat = torch.zeros(count, dtype=before.dtype, device="cpu")
                        flat[: before.numel()] = before[:count]
                    self.table.put(self_, Value.of(flat, old.assumed))
            except Exception as error:
                complain(error)
            return out

        return kernel

    def _stepped(self, op, call):
        def kernel(keys, *args, **kwargs):
            out = call(keys & _BELOW, *args, **kwargs)
            # The same tensors at every step: what was known of them goes once.
            which = (len(args[0]), identity(args[0][0]) if args[0] else 0)
            if which not in self.fused:
                self.fused.add(which)
                for tensors in args:
                    if isinstance(tensors, (list, tuple)):
                        for tensor in tensors:
                            self.table.drop(tensor)
            return out

        return kernel

    def _write(self, tensor, old, change, given, fixed=True):
        """Holds for a tensor's storage what comes of ``change`` to the tensor's part of what it held."""
        parts = given.parts if old is None else [*given.parts, old]
        assumed = given.assumed or (old is not None and old.assumed)
        count, place = tensor.untyped_storage().nbytes() // tensor.element_size(), View(None, tensor)

        def make():
            flat = torch.zeros(count, dtype=place.dtype, device="cpu") if old is None else old.flat().clone()
            change(part(flat, place))
            return flat

        self.table.put(tensor, Value(make, parts, assumed), fixed)

    # ------------------------------------------------------------------ what the program reads

    def _known(self, tensor):
        """A tensor's values, and the rule that stands behind them; none where they are not known."""
        try:
            view = self.table.view(tensor)
            if view is not None:
                return view.tensor(), view.value.assumed
        except Exception as error:
            _failed(error)
        return None, "item"

    def _read(self, op, call):
        def kernel(keys, self_):
            out = call(keys & _BELOW, self_)
            if not self_.is_cuda:
                return out
            known, rule = self._known(self_)
            if rule and not self.quiet:
                self.reads.note(rule, self_.dtype)
            with _threads.aside():
                return out if known is None else known.item()

        return kernel

    def _fetched(self, to, source):
        known, rule = self._known(source)
        if rule:
            self.reads.note(rule, source.dtype)
        if known is not None:
            with _threads.aside():
                to.detach().copy_(known)

    def _equal(self, op, call):
        def kernel(keys, self_, other):
            self.quiet = True
            try:
                out = call(keys & _BELOW, self_, other)
            finally:
                self.quiet = False
            if self_.size() != other.size():
                return out
            one, rule = self._known(self_)
            two, other_rule = self._known(other)
            if rule or other_rule:
                self.reads.note("all", self_.dtype)
            with _threads.aside():
                return True if one is None or two is None else torch.equal(one, two)

        return kernel

    def _nonzero(self, op, call):
        def kernel(keys, self_):
            if self.kept is not None and self.kept.numel() == self_.numel():
                known, rule = self.kept.reshape(self_.shape), self.kept_rule
            else:
                known, rule = self._known(self_)
            if known is None:
                rule, count, where = "nonzero", self_.numel(), None
            else:
                with _threads.aside():
                    where = torch.nonzero(known)
                count = where.size(0)
            if rule:
                self.reads.note(rule, self_.dtype)
            out = self._told(count, 4, lambda: call(keys & _BELOW, self_))
            if out.size(0) != count:
                # The stand-in did not hand on the count.
                out = torch.empty((self_.dim(), count), dtype=torch.int64, device=self_.device).t()
            if count <= LIMIT:
                shape = self_.shape
                make = (lambda: torch.ones(shape, dtype=torch.bool, device="cpu").nonzero()) if where is None else (lambda: where)
                self.table.put(out, _laid(make, out, (), rule))
            return out

        return kernel

    def _unique(self, op, call):
        def kernel(keys, self_, *args, **kwargs):
            given = _Given()
            frozen, named = self._freeze((self_, *args), given), self._freeze(kwargs, given)
            outs = None
            if frozen is not _UNKNOWN:
                try:
                    with _threads.aside():
                        outs = op(*_thaw(frozen), **_thaw(named))
                    count, rule = outs[0].size(args[0] if op.__name__.startswith("unique_dim") else 0), given.assumed
                except Exception as error:
                    _failed(error)
            if outs is None:
                count, rule = (self_.size(args[0]) if op.__name__.startswith("unique_dim") else self_.numel()), "unique"
            if rule:
                self.reads.note(rule, self_.dtype)
            got = self._told(count, 8, lambda: call(keys & _BELOW, self_, *args, **kwargs))
            if outs is None:
                return got
            # Where the kernel asked for the count in its own way, it did not hear it.
            got = tuple(
                out if out.size() == known.size() else torch.empty(known.size(), dtype=out.dtype, device=out.device)
                for out, known in zip(got, outs)
            )
            for index, out in enumerate(got):
                if out.numel() and out.numel() <= LIMIT:
                    self.table.put(out, _laid(lambda index=index: outs[index], out, (), rule))
            return got

        return kernel

    def _nms(self, op, call):
        def kernel(keys, boxes, scores, threshold):
            kept, keep, rule = None, None, "nms"
            try:
                known, of_boxes = self._known(boxes)
                by, of_scores = self._known(scores)
                with _threads.aside():
                    if known is not None and by is not None:
                        rule = of_boxes or of_scores
                        kept = op(known, by, threshold)
                        # It selects from the order of the scores.
                        keep = torch.isin(by.argsort(stable=True, descending=True), kept)
                    else:
                        kept = torch.arange(boxes.size(0), device="cpu")
                        keep = torch.ones(boxes.size(0), dtype=torch.bool, device="cpu")
            except Exception as error:
                _failed(error)
            self.kept, self.kept_rule = keep, rule
            try:
                out = call(keys & _BELOW, boxes, scores, threshold)
            finally:
                self.kept = None
            try:
                if kept is not None and kept.size() == out.size():
                    self.table.put(out, Value.of(kept, rule))
                else:
                    self.table.drop(out)
            except Exception as error:
                _failed(error)
            return out

        return kernel

    def _told(self, count, size, call):
        """Runs a kernel that asks the card for one count."""
        self.quiet = True
        if self.answer is not None:
            self.answer(count.to_bytes(size, "little"), size)
        try:
            return call()
        finally:
            self.quiet = False
            if self.answer is not None:
                self.answer(None, 0)

    # ------------------------------------------------------------------ gradient scalers

    def _unscaled(self, op, call):
        def kernel(keys, grads, found, scale):
            out = call(keys & _BELOW, grads, found, scale)
            # PyTorch calls again for tensors on other devices and of other types: what was found stays.
            known, _ = self._known(found)
            overflow = self.updates in self._steps_of(found) or bool(known is not None and known.item())
            self.table.put(found, Value.of(torch.full((1,), float(overflow), dtype=torch.float32, device="cpu"), "scaler"), fixed=False)
            return out

        return kernel

    def _steps_of(self, found):
        """The steps that overflow of the optimizer that this is found of: each has one tensor for it on a device."""
        this = (found.device, found.data_ptr())
        if this not in self.founds:
            self.founds.append(this)
        before = [device for device, _ in self.founds[: self.founds.index(this)]].count(found.device)
        return self.skip_steps[min(before, len(self.skip_steps) - 1)]

    def _scaled(self, op, call):
        def kernel(keys, scale, growth, found, *rest):
            values = [self._known(tensor)[0] for tensor in (scale, growth, found)]
            out = call(keys & _BELOW, scale, growth, found, *rest)
            self.updates += 1
            self.founds = []
            if any(value is None for value in values):
                self.table.drop(scale)
                self.table.drop(growth)
            else:
                with _threads.aside():
                    one, two, three = (value.clone() for value in values)
                    op(one, two, three, *rest)
                self.table.put(scale, Value.of(one.reshape(-1), "scaler"), fixed=False)
                self.table.put(growth, Value.of(two.reshape(-1), "scaler"), fixed=False)
            return out

        return kernel


def _failed(error):
    """What can't be noted is not known. Tensors without memory of their own (sparse ones, those of transforms) are none of ours."""
    if not isinstance(error, NotImplementedError):
        complain(error)


def _operation(space, name):
    """The operation of a name; ``None`` where this PyTorch has none, or makes it of others, which are here."""
    packet, _, overload = name.partition(".")
    try:
        op = getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    except AttributeError:
        return None
    return None if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd") else op


def _tensors(op):
    """Which of the things that an operation is given are tensors; nothing where only the first is."""
    at = [index for index, argument in enumerate(op._schema.arguments) if str(argument.type) == "Tensor"]
    return [] if at == [0] else at


def _with_numbers(op, at, args):
    """PyTorch hands numbers to kernels of Python where its own get tensors without dimensions: what takes such, else the operation itself."""
    for index in at:
        if index < len(args) and type(args[index]) in _NUMBERS:
            return op._overloadpacket
    return op


def _is_of_card(tensor):
    """Whether it is a plain tensor of the card, with memory of its own."""
    return type(tensor) in _PLAIN and tensor.is_cuda and tensor.layout is torch.strided and not tensor.is_nested


class _Given:
    """Values behind what an operation is given."""

    __slots__ = ("parts", "assumed")

    def __init__(self, assumed=None):
        self.parts, self.assumed = [], assumed


class _Like:
    __slots__ = ("shape", "dtype")

    def __init__(self, tensor):
        self.shape, self.dtype = tensor.size(), tensor.dtype


class _Once:
    """Calls once."""

    __slots__ = ("make", "made")

    def __init__(self, make):
        self.make, self.made = make, None

    def __call__(self):
        if self.made is None:
            self.made = self.make()
            self.make = None
        return self.made


def _thaw(frozen):
    if type(frozen) is View:
        return frozen.tensor()
    if type(frozen) is list:
        return [_thaw(one) for one in frozen]
    if type(frozen) is dict:
        return {key: _thaw(one) for key, one in frozen.items()}
    return frozen


def _laid(make, out, parts, assumed):
    """The content of the storage of ``out``, a new tensor, of the result that ``make`` gives."""
    count, place, plain = out.untyped_storage().nbytes() // out.element_size(), View(None, out), whole(out) and out.is_contiguous()

    def flat():
        result = make().to(place.dtype)
        if result.size() != place.shape:
            raise ValueError(f"computed as {tuple(result.size())} where the card has {tuple(place.shape)}")
        if plain:
            return result.contiguous().reshape(-1)
        flat = torch.zeros(count, dtype=place.dtype, device="cpu")
        part(flat, place).copy_(result)
        return flat

    return Value(flat, parts, assumed)


def _in_place():
    """Names of the operations that change a tensor of the card in place, one at a time."""
    names = set()
    for key in ("CUDA", "CompositeExplicitAutograd"):
        names.update(torch._C._dispatch_get_registrations_for_dispatch_key(key))
    for name in sorted(name.removeprefix("aten::") for name in names if name.startswith("aten::")):
        base = name.partition(".")[0]
        changes = base.startswith("__i") or (base.endswith("_") and not base.endswith("__"))
        if changes and base not in NOT_CHANGED and not base.startswith(("_foreach", "_fused", "_amp")) and name not in DRAWN:
            yield name


def _answer():
    """The stand-in's ``vramlab_answer``: what the next copy of so many bytes to the host finds. ``None`` where it has none."""
    try:
        answer = ctypes.CDLL(None).vramlab_answer
        answer.argtypes, answer.restype = [ctypes.c_char_p, ctypes.c_size_t], None
        return answer
    except (OSError, AttributeError):
        return None


def _skipped(text):
    """Steps that overflow: `3` the first three, `1..4` the steps 1 to 3, counted from 0. `1..4,0`: of the first optimizer, and of the next ones."""

    def steps(text):
        first, dots, end = text.partition("..")
        first, end = (first, end) if dots else ("0", first)
        return range(int(first), int(end)) if first.isdigit() and end.isdigit() else range(0)

    return [steps(part) for part in text.split(",")]


def start():
    """Begins to follow values, where a card is not there. Returns what counts reads."""
    from ._later import when_imported
    from ._reads import Reads

    # Beside the description of the card.
    reads = Reads(os.path.dirname(os.environ.get("VRAMLAB_CARD", "")))
    _server.last_words.append(reads.sentences)
    skip = os.environ.get("VRAMLAB_SKIP_STEPS", "")
    kernels = Kernels(reads, _skipped(skip))
    kernels.register()
    _threads.begin()
    when_imported("torchvision", kernels.register_vision)
    when_imported("torch.distributed", kernels.register_collectives)
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(lambda *_: _threads.step_begins())
        register_optimizer_step_post_hook(lambda *_: (_threads.step_ends(), reads.stepped()) and None)
    except ImportError:
        # PyTorch before 2.0.
        pass
    return kernels
