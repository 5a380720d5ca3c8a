"""A process that is one of the peers in Python, for bin/bench: python serve.py with_NAME

Answers the commands that bench/compare/server.ex describes, in the same way. What a framework does
is in its own file: the workloads as functions by the names of bench/compare/functions.ex, and
  INFO     what it is and how many threads it takes
  ABSENT   functions that it has not, with the reason
  array    from NumPy to its array, and as a type of its own where the last argument says bf16
  jit      compiles a function, or hands it back where that is not what users do
  host     from its array to NumPy: waits until it is computed
"""

import importlib
import os
import statistics
import sys
import time
import traceback

import numpy as np

from common import Absent

TYPES = {"f32": np.float32, "bf16": np.float32, "s32": np.int32, "u32": np.uint32}
NAMES = {"float32": "f32", "float64": "f64", "int32": "s32", "int64": "s64", "uint32": "u32", "bool": "u8"}


def read_description(path):
    spec = {"options": {}, "inputs": []}
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, *words = line.split()
            if key == "option":
                spec["options"][words[0]] = int(words[1])
            elif key == "input":
                name, kind, dims = words
                data = np.fromfile(name, TYPES[kind]).reshape([int(n) for n in dims.split("x")])
                spec["inputs"].append((data, kind))
            else:
                spec[key] = words[0]
    return spec


class Workload:
    """One that is loaded: `step` from state to state, as often as is asked for."""

    def __init__(self, peer, path):
        self.resident = resident("VmRSS")
        self.spec = spec = read_description(path)
        name, self.mode = spec["function"], spec["mode"]
        if name in peer.ABSENT:
            raise Absent(peer.ABSENT[name])
        function = getattr(peer, name)
        self.peer = peer
        self.start = None
        self.finish = lambda state: state
        self.results = lambda state: flat(state)

        if self.mode in ("custom", "gauge"):
            run = function(spec["inputs"], **spec["options"])
            self.step = lambda _: run()
            return

        inputs = [peer.array(data, kind) for data, kind in spec["inputs"]]
        pack = int(spec["pack"])
        if pack:
            inputs = [tuple(inputs[:pack])] + inputs[pack:]
        options = {} if self.mode == "memory" else spec["options"]
        if options:
            with_options = function
            function = lambda *args: with_options(*args, **options)
        call = function if self.mode == "eager" else peer.jit(function)
        host = peer.host

        if self.mode in ("step", "memory"):
            first, *rest = inputs
            self.start = (first, None)

            def step(state):
                params, loss = call(state[0], *rest)
                host(loss)
                return params, loss

            self.step = step
            self.finish = lambda state: [host(x) for x in flat(state)]
        elif spec["read"] == "true":

            def step(_):
                outputs = call(*inputs)
                if isinstance(outputs, (tuple, list)):
                    for x in outputs:
                        host(x)
                else:
                    host(outputs)
                return outputs

            self.step = step
        else:
            self.step = lambda _: call(*inputs)
            self.finish = lambda state: [host(x) for x in flat(state)]

    def check(self, path):
        results = self.results(self.step(self.start))
        canonical = getattr(self.peer, "canonical", lambda x: x)
        names = []
        for i, result in enumerate(results):
            data = result if isinstance(result, np.ndarray) else self.peer.host(result)
            data = np.ascontiguousarray(canonical(data))
            names.append(NAMES[data.dtype.name])
            data.tofile(f"{path}.{i}")
        return names

    def time(self, count, batches):
        times = []
        for _ in range(batches):
            state = self.start
            begin = time.perf_counter_ns()
            for _ in range(count):
                state = self.step(state)
            if self.mode == "step":
                self.finish(state)
            spent = time.perf_counter_ns() - begin
            if self.mode != "step":
                self.finish(state)
            times.append(spent / count)
        return [statistics.median(times)]

    def gauge(self):
        if self.mode == "gauge":
            return self.step(None)
        state = self.start
        for _ in range(10):
            state = self.step(state)
        self.finish(state)
        first = resident("VmHWM")
        for _ in range(self.spec["options"]["steps"]):
            state = self.step(state)
        self.finish(state)
        return [first - self.resident, max(resident("VmHWM") - first, 0)]


def flat(x):
    if isinstance(x, (tuple, list)):
        return [leaf for part in x for leaf in flat(part)]
    return [x]


def resident(field):
    """A field of /proc/self/status in bytes; 0 where there is none."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def answer(peer, command, loaded):
    match command:
        case ["info"]:
            return ["ok", peer.INFO], loaded
        case ["load", path]:
            return ["ok"], Workload(peer, path)
        case ["check", path]:
            return ["ok", *loaded.check(path)], loaded
        case ["time", count, batches]:
            return ["ok", *loaded.time(int(count), int(batches))], loaded
        case ["gauge"]:
            return ["ok", *loaded.gauge()], loaded


def main():
    # What a framework prints goes to standard error.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    peer = importlib.import_module(sys.argv[1])
    loaded = None
    for line in sys.stdin:
        try:
            words, loaded = answer(peer, line.split(), loaded)
        except Absent as reason:
            words, loaded = ["none", str(reason)], None
        except Exception as error:  # Whatever it is, the other workloads go on.
            traceback.print_exc()
            words = ["failed", " ".join(f"{type(error).__name__}: {error}".split())[:300]]
        print("@", *words, file=replies)


if __name__ == "__main__":
    main()
