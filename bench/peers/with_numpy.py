"""The workloads in NumPy, which has neither a compiler nor gradients."""

import os

import numpy as np

import common

INFO = f"NumPy {np.__version__}; threads: its BLAS's default, {os.cpu_count()} cores here"

NO_GRADIENTS = "NumPy has no gradients"
ABSENT = {
    "gelu": "NumPy has no erf",
    "conv": "NumPy has no convolution of images",
    "conv_grad": NO_GRADIENTS,
    "max_pool_grad": NO_GRADIENTS,
    "mlp_step": NO_GRADIENTS,
    "cnn_forward": "NumPy has no convolution of images",
    "cnn_step": NO_GRADIENTS,
    "transformer_forward": "NumPy has no erf",
    "transformer_step": NO_GRADIENTS,
    "latency_stream": "it has no streams of this kind",
    "compile": "it does not compile",
    "first_call": "it does not compile",
}


def array(data, kind):
    if kind == "bf16":
        raise common.Absent("NumPy has no bf16")
    return data


def jit(function):
    return function


def host(x):
    return np.asarray(x)


def add(a, b):
    return a + b


def chain(x):
    return np.exp(np.sin(x) * 2 + 1)


def axpy(x, y):
    return 2 * x + y


def where_cast(x, y):
    steps = (x * 10).astype(np.int32)
    even = np.fmod(steps, 2) == 0
    return np.where(even, steps.astype(np.float32), y) + (x > y).astype(np.float32)


def sum_all(x):
    return np.sum(x)


def mean_rows(x):
    return np.mean(x, axis=1)


def mean_columns(x):
    return np.mean(x, axis=0)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layer_norm(x, scale, shift):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * scale + shift


def matmul(x, y):
    return x @ y


def max_pool(x):
    batch, channels, height, width = x.shape
    return x.reshape(batch, channels, height // 2, 2, width // 2, 2).max(axis=(3, 5))


def cholesky(x):
    return np.linalg.cholesky(x)


def qr(x):
    return tuple(np.linalg.qr(x))


def svd(x):
    return tuple(np.linalg.svd(x))


def solve(a, b):
    return np.linalg.solve(a, b)


def sort(x):
    return np.sort(x)


def argsort(x):
    return np.argsort(x)


def take(x, places):
    return x[places]


def scatter_add(x, places, y):
    x = x.copy()
    np.add.at(x, places, y)
    return x


GENERATOR = np.random.default_rng(42)


def uniform(key, n):
    return GENERATOR.random(n, dtype=np.float32)


def normal(key, n):
    return GENERATOR.standard_normal(n, dtype=np.float32)


def counted(x, times):
    for _ in range(times):
        x = np.sin(x) + 1
    return x


def mlp_forward(params, x):
    w1, b1, w2, b2, w3, b3 = params
    x = np.maximum(x @ w1 + b1, 0)
    x = np.maximum(x @ w2 + b2, 0)
    return x @ w3 + b3


def upload(inputs):
    [(data, _)] = inputs
    return lambda: [data.copy()[-1:]]


def download(inputs):
    [(data, _)] = inputs
    return lambda: [host(data)]


def processes(inputs, processes, adds):
    (a, _), (b, _) = inputs

    def work():
        for _ in range(adds):
            c = a + b
        return c

    return lambda: common.all_at_once(work, processes)


def latency(inputs, samples):
    (a, _), (m, _) = inputs
    return lambda: common.beside(lambda: m @ m, lambda: a + a, samples)
