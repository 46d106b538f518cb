"""What `record.py` wrote on a card, as the table that the stand-in GPU embeds.

    pack.py add TABLE CASES ANSWERS …       puts the answers into the table
    pack.py missing TABLE CASES ANSWERS …   prints the plans that the table lacks, of answers without a card: what to ask one for

An entry is 9 bytes, big endian: the upper 5 of a hash of the plan as `src/standin/library/plans.rs` spells it, and 4 for its workspace. Kept is
what can't be told without a card: the first plan that PyTorch takes, with and without TensorFloat-32, where an engine asks the card for
how many of its kernels' clusters fit, or asks cuBLASLt.
"""

import json
import os
import struct
import sys

from record import CLUSTER_M, DOWN_CONVERT, TENSOR_CORE, WORKSPACE, read, strides


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def spelled(kind, x, w, y, pad, stride, dilation, last, dtype, engine, knobs):
    plain = all(strides(t, last) == strides(t, False) for t in (x, w, y))
    lists = ";".join(",".join(map(str, part)) for part in (x, w, y, pad, stride, dilation))
    return f"{kind}{'f' if plain else 'l'}{dtype}:{lists}:{engine}:{knobs}"


def kept(plans):
    """The first plan that is one, and the first of them that is no TensorFloat-32."""
    plans = [] if isinstance(plans, str) else [plan for plan in plans if plan[2] >= 0]
    plain = [plan for plan in plans if not {TENSOR_CORE, DOWN_CONVERT} & set(plan[3])]
    return plans[:1] + plain[:1]


def answered(path, answers):
    """Plans whose workspace can't be told without a card, as they are spelled, and what was answered."""
    all_cases, _ = read(path)
    with open(answers, encoding="utf-8") as file:
        for line in file:
            at, plans = json.loads(line)
            for engine, knobs, workspace, _ in kept(plans):
                choices = dict(pair.split("=") for pair in knobs.split())
                asks_cublas_lt = set(choices) == {WORKSPACE} and choices[WORKSPACE] != "0"
                asks_card = CLUSTER_M in choices and choices.get(WORKSPACE) == "0"
                if (asks_cublas_lt or asks_card) and workspace < 1 << 32:
                    yield spelled(*all_cases[at], engine, knobs), workspace


def table(path):
    """Workspaces by the upper 5 bytes of the plans' hashes."""
    with open(path, "rb") as file:
        return dict(struct.iter_unpack(">5sI", file.read()))


def key(plan):
    return fnv(plan).to_bytes(8, "big")[:5]


def add(path, *files):
    entries = table(path) if os.path.exists(path) else {}
    for cases, answers in zip(files[::2], files[1::2], strict=True):
        entries.update((key(plan), workspace) for plan, workspace in answered(cases, answers))
    with open(path, "wb") as file:
        for entry in sorted(entries.items()):
            file.write(struct.pack(">5sI", *entry))
    print(len(entries), "plans")


def missing(path, *files):
    entries = table(path)
    for cases, answers in zip(files[::2], files[1::2], strict=True):
        for plan, _ in answered(cases, answers):
            if key(plan) not in entries:
                print(" estimate:", plan)


if __name__ == "__main__":
    {"add": add, "missing": missing}[sys.argv[1]](*sys.argv[2:])
