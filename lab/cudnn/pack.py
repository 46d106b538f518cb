"""pack.py LAYERS.json ANSWERS.jsonl TABLE: what `record.py` wrote on a card as the table that the stand-in GPU embeds.

An entry is 12 bytes, little endian: a hash of the plan as `src/standin/library/plans.rs` spells it, and the bytes of its workspace. Kept is
what can't be told without a card: the first plan that PyTorch takes, with and without TensorFloat-32, where an engine asks the card for
how many of its kernels' clusters fit, or asks cuBLASLt.
"""

import json
import struct
import sys

from record import CLUSTER_M, DOWN_CONVERT, TENSOR_CORE, WORKSPACE, cases, strides


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
    """The first plan, and the first that is no TensorFloat-32."""
    plain = [plan for plan in plans if not {TENSOR_CORE, DOWN_CONVERT} & set(plan[3])]
    return plans[:1] + plain[:1]


def main(layers, answers, table):
    with open(layers, encoding="utf-8") as file:
        all_cases = cases(json.load(file))
    entries = {}
    with open(answers, encoding="utf-8") as file:
        for line in file:
            at, plans = json.loads(line)
            for engine, knobs, workspace, _ in [] if isinstance(plans, str) else kept(plans):
                choices = dict(pair.split("=") for pair in knobs.split())
                asks_cublas_lt = set(choices) == {WORKSPACE} and choices[WORKSPACE] != "0"
                asks_card = CLUSTER_M in choices and choices.get(WORKSPACE) == "0"
                if (asks_cublas_lt or asks_card) and 0 <= workspace < 1 << 32:
                    entries[fnv(spelled(*all_cases[at], engine, knobs))] = workspace
    with open(table, "wb") as file:
        for key in sorted(entries):
            file.write(struct.pack("<QI", key, entries[key]))
    print(len(entries), "plans")


if __name__ == "__main__":
    main(*sys.argv[1:])
