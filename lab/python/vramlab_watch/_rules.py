"""What stands for values that can't be known: one rule for each kind of operation, in one table.

A rule is chosen for what it does to memory: where the card's own numbers would decide how much is needed, it takes as much as they
could ask for, or the average where that is what a trained program comes to.
"""

import torch

RULES = {
    "item": ("a number, also where it is compared, or a tensor copied to the host", "zero, or false", "the losses that a program prints are 0"),
    "all": ("all(), equal()", "true", "a mask that hides nothing is left out, as it would be"),
    "any": ("any()", "false", "nothing went wrong: no NaN, no overflow"),
    "compare": ("== and isnan()", "false", "no token is the end, nothing is NaN"),
    "keep": ("<, <=, >, >=, !=", "true", "a filter keeps everything: the most memory"),
    "pick": ("topk(), argmax(), argmin(), multinomial(), max() and min() along a dimension: the indices", "spread evenly, from the middle on",
             "experts get as many tokens each; no token is the end"),
    "order": ("sort(), argsort(): the indices", "as they lie", "none"),
    "nonzero": ("nonzero() and a selection by a mask that is not followed", "every element", "the most memory"),
    "unique": ("unique()", "no two are alike", "the most memory"),
    "nms": ("torchvision's nms()", "keeps every box", "the most memory"),
    "random": ("rand(), randint(), randperm(), bernoulli()", "drawn on the processor, with a seed of their own",
               "other numbers than the card's, as many of them"),
    "scaler": ("a gradient scaler's overflow", "none but in the first steps of --skip-steps", "none"),
}
"""By name: what it is about, what is taken, and what that means for memory. The guide shows this table."""


def false(out):
    """Every element false."""
    return torch.zeros(out.shape, dtype=out.dtype, device="cpu")


def true(out):
    """Every element true."""
    return torch.ones(out.shape, dtype=out.dtype, device="cpu")


def spread(shape, dim, among):
    """Indices along ``dim`` below ``among``: one after the other from the middle, so that each is taken as often."""
    if not shape:
        return torch.full((), among // 2, dtype=torch.int64, device="cpu")
    dim %= len(shape)
    order = list(shape[:dim]) + list(shape[dim + 1 :]) + [shape[dim]]
    count = 1
    for size in shape:
        count *= size
    indices = (torch.arange(count, dtype=torch.int64, device="cpu") + among // 2) % max(among, 1)
    return indices.reshape(order).movedim(-1, dim)


def as_they_lie(shape, dim):
    """The indices of an order that changes nothing."""
    if not shape:
        return torch.zeros((), dtype=torch.int64, device="cpu")
    dim %= len(shape)
    along = [1] * len(shape)
    along[dim] = shape[dim]
    return torch.arange(shape[dim], dtype=torch.int64, device="cpu").reshape(along).expand(shape)
