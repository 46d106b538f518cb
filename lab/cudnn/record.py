"""record.py CASES OUT WORKER WORKERS SECONDS [PROPERTIES.json]: what cuDNN plans for these cases, as JSON lines.

CASES is a JSON of layers, as `layers.py` writes it, or a text in which the stand-in said which plans it estimates. `CASES@N` begins at the
Nth case. Only cuDNN's documented graph API is asked, for the graphs that PyTorch builds; nothing is executed. On a card a handle is used; with
PROPERTIES.json (a device's properties, as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION says them) no card is needed. Several workers share the
cases: each takes every WORKERS-th of them for so many SECONDS. A line is [case, [[engine, "knob=value …", workspace, numerical notes], …]].
"""

import ctypes as C
import glob
import json
import random
import sys
import time

TENSOR_CORE, DOWN_CONVERT = "0", "1"
WORKSPACE, CLUSTER_M = "25", "27"
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)
FLOAT, HALF, BFLOAT16 = 0, 2, 9
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
LARGEST = 1 << 30
# Kinds of descriptors and types of attributes, as cudnn_graph.h numbers them.
CONVOLUTION, ENGINE, CONFIGURATION, HEURISTICS, PLAN, KNOB, GRAPH, TENSOR, DEVICE = 1, 2, 3, 4, 5, 7, 15, 17, 38
HANDLE, DATA_TYPE, INT64, REAL, MODE, HEURISTIC, KNOB_TYPE, NOTE, DESCRIPTOR = 0, 1, 3, 4, 7, 8, 9, 11, 15


class RefusedError(Exception):
    pass


def check(status):
    if status:
        raise RefusedError(status)


def strides(sizes, channels_last):
    """As PyTorch tells cuDNN, which also has strides for sizes of one."""
    found, step = [0] * len(sizes), 1
    inner = list(range(len(sizes) - 1, 1, -1))
    for at in ([1, *inner] if channels_last else [*inner, 1]) + [0]:
        found[at] = step
        step *= sizes[at]
    return found


def cases(layers, batches=None, seed=5):
    """(pass, x, w, y, padding, stride, dilation, channels last, type): three batches of each layer first, in a random order."""
    chance, first, rest = random.Random(seed), [], []
    for x, w, pad, stride, dilation, _, y in layers:
        if len(pad) == 1:
            x, w, y = [x[0], 1, x[1]], [*w[:2], 1, w[2]], [y[0], 1, y[1]]
            pad, stride, dilation = [0, *pad], [1, *stride], [1, *dilation]
        elements = 1
        for size in x:
            elements *= size
        fitting = [batch for batch in batches or BATCHES if batch * elements < LARGEST]
        chosen = set(chance.sample(fitting, min(3, len(fitting))))
        for batch in fitting:
            for dtype in (FLOAT, HALF, BFLOAT16):
                for last in (False, True):
                    for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT):
                        case = (kind, [batch, *x], w, [batch, *y], pad, stride, dilation, last, dtype)
                        (first if batch in chosen else rest).append(case)
    chance.shuffle(first)
    chance.shuffle(rest)
    return first + rest


def asked(lines):
    """The cases of plans that the stand-in estimated (`VRAMLAB_STANDIN=debug`), as `pack.py` spells plans."""
    found = {}
    for line in lines:
        head, lists, _, _ = line.rsplit(" estimate: ", 1)[-1].rsplit(":", 3) if " estimate: " in line else ("", "", "", "")
        if head:
            x, w, y, pad, stride, dilation = ([int(number) for number in part.split(",")] for part in lists.split(";"))
            found[head, lists] = (int(head[0]), x, w, y, pad, stride, dilation, head[1] == "l", int(head[2:]))
    return list(found.values())


def read(path):
    """All cases of a file, and the first that is to be asked."""
    path, _, first = path.partition("@")
    with open(path, encoding="utf-8") as file:
        if not path.endswith(".json"):
            return asked(file), int(first or 0)
        told = json.load(file)
        told = told if isinstance(told, dict) else {"layers": told}
        return cases(**told), int(first or 0)


class Cudnn:
    def __init__(self, properties):
        found = [name for path in sys.path for name in glob.glob(path + "/nvidia/cudnn/lib/libcudnn.so.9")]
        self.cudnn = C.CDLL(found[0] if found else "libcudnn.so.9")
        self.kept = []
        self.device = self.handle = None
        if properties:
            with open(properties, "rb") as file:
                text = file.read().strip()
            self.device = self.new(DEVICE)
            self.put(self.device, 2702, INT64, C.create_string_buffer(text), len(text))
            self.finish(self.device)
            self.kept = []
        else:
            import torch

            torch.zeros(1, device="cuda")
            self.handle = C.c_void_p()
            check(self.cudnn.cudnnCreate(C.byref(self.handle)))

    def new(self, kind):
        made = C.c_void_p()
        check(self.cudnn.cudnnBackendCreateDescriptor(kind, C.byref(made)))
        self.kept.append(made)
        return made

    def drop(self):
        for made in reversed(self.kept):
            self.cudnn.cudnnBackendDestroyDescriptor(made)
        self.kept = []

    def finish(self, made):
        check(self.cudnn.cudnnBackendFinalize(made))

    def put(self, made, name, kind, values, count):
        check(self.cudnn.cudnnBackendSetAttribute(made, name, kind, C.c_int64(count), values))

    def integers(self, made, name, values):
        self.put(made, name, INT64, (C.c_int64 * len(values))(*values), len(values))

    def word(self, made, name, kind, value):
        self.put(made, name, kind, (C.c_int * 1)(value), 1)

    def link(self, made, name, other, kind=DESCRIPTOR):
        self.put(made, name, kind, (C.c_void_p * 1)(other.value), 1)

    def get(self, made, name, kind, room, count):
        told = C.c_int64()
        status = self.cudnn.cudnnBackendGetAttribute(made, name, kind, C.c_int64(count), C.byref(told), room)
        return status, told.value

    def tensor(self, name, sizes, last, dtype):
        made = self.new(TENSOR)
        self.integers(made, 900, [16])
        self.word(made, 901, DATA_TYPE, dtype)
        self.integers(made, 902, sizes)
        self.integers(made, 903, strides(sizes, last))
        self.integers(made, 906, [ord(name)])
        self.finish(made)
        return made

    def graph(self, kind, x, w, y, pad, stride, dilation, last, dtype):
        tensors = [self.tensor(name, sizes, last, dtype) for name, sizes in zip("wxy", (w, x, y), strict=True)]
        convolution = self.new(CONVOLUTION)
        self.word(convolution, 100, DATA_TYPE, FLOAT)
        self.word(convolution, 101, MODE, 1)
        for name, values in ((102, dilation), (103, stride), (104, pad), (105, pad), (106, [len(pad)])):
            self.integers(convolution, name, values)
        self.finish(convolution)
        descriptor, name = ((10, 700), (12, 706), (11, 712))[kind]
        operation = self.new(descriptor)
        self.put(operation, name, REAL, (C.c_float * 1)(1.0), 1)
        self.put(operation, name + 1, REAL, (C.c_float * 1)(0.0), 1)
        for at, part in enumerate([convolution, *tensors]):
            self.link(operation, name + 2 + at, part)
        self.finish(operation)
        graph = self.new(GRAPH)
        if self.handle:
            self.link(graph, 800, self.handle, HANDLE)
        self.link(graph, 801, operation)
        self.finish(graph)
        return graph

    def configurations(self, graph):
        heuristics = self.new(HEURISTICS)
        self.link(heuristics, 201, graph)
        self.word(heuristics, 200, HEURISTIC, 0)
        if self.device:
            self.link(heuristics, 204, self.device)
        self.finish(heuristics)
        _, count = self.get(heuristics, 202, DESCRIPTOR, None, 0)
        made = [self.new(CONFIGURATION) for _ in range(count)]
        room = (C.c_void_p * max(1, count))(*[one.value for one in made])
        status, count = self.get(heuristics, 202, DESCRIPTOR, room, count)
        check(status)
        return made[:count]

    def engine(self, configuration):
        """Its number and its numerical notes."""
        engine = self.new(ENGINE)
        check(self.get(configuration, 300, DESCRIPTOR, (C.c_void_p * 1)(engine.value), 1)[0])
        number, notes = (C.c_int64 * 1)(), (C.c_int * 16)()
        self.get(engine, 1301, INT64, number, 1)
        _, count = self.get(engine, 1303, NOTE, notes, 16)
        return number[0], "".join(map(str, sorted(notes[:count])))

    def knobs(self, configuration):
        choices = [self.new(KNOB) for _ in range(12)]
        _, count = self.get(configuration, 302, DESCRIPTOR, (C.c_void_p * 12)(*[one.value for one in choices]), 12)
        told = []
        for choice in choices[:count]:
            kind, value = (C.c_int * 1)(), (C.c_int64 * 1)()
            self.get(choice, 600, KNOB_TYPE, kind, 1)
            self.get(choice, 601, INT64, value, 1)
            told.append(f"{kind[0]}={value[0]}")
        return " ".join(told)

    def workspace(self, configuration):
        """Of the plan; -1 where there is none."""
        plan, bytes_ = self.new(PLAN), (C.c_int64 * 1)(-1)
        self.link(plan, 401, configuration)
        if self.device:
            self.link(plan, 407, self.device)
        else:
            self.link(plan, 400, self.handle, HANDLE)
        if self.cudnn.cudnnBackendFinalize(plan) == 0:
            self.get(plan, 402, INT64, bytes_, 1)
        return bytes_[0]

    def plans(self, case):
        """The first plan, and the first that is no TensorFloat-32; before each those that were refused."""
        found, first, plain = [], False, case[-1] != FLOAT
        for configuration in self.configurations(self.graph(*case)):
            number, notes = self.engine(configuration)
            core = TENSOR_CORE in notes or DOWN_CONVERT in notes
            if first and (core or plain):
                continue
            bytes_ = self.workspace(configuration)
            first |= bytes_ >= 0
            plain |= bytes_ >= 0 and not core
            found.append([number, self.knobs(configuration), bytes_, notes])
            if first and plain:
                break
        return found


def main(path, out, worker, workers, seconds, properties=None):
    all_cases, first = read(path)
    cudnn, begin = Cudnn(properties), time.monotonic()
    with open(f"{out}.{worker}", "w", encoding="utf-8") as file:
        for at in range(first + int(worker), len(all_cases), int(workers)):
            if time.monotonic() - begin > float(seconds):
                break
            try:
                told = cudnn.plans(all_cases[at])
            except RefusedError as error:
                told = str(error)
            cudnn.drop()
            file.write(json.dumps([at, told], separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
