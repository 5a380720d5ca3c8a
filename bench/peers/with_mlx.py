"""The workloads in MLX's own Python, on the CPU.

Images lie with their channels last, as MLX has them: those that come in with four axes are turned
when they are loaded, and turned back when they are compared, both outside of what is timed.
"""

import os

import mlx.core as mx
import mlx.nn as nn
import numpy as np

import common

mx.set_default_device(mx.cpu)
INFO = f"MLX {mx.__version__} for Python; threads: its default, {os.cpu_count()} cores here"

ABSENT = {
    "latency_stream": "it has no streams of this kind",
    "compile": "it compiles when it is called",
}


def array(data, kind):
    if data.ndim == 4:
        data = np.ascontiguousarray(data.transpose(0, 2, 3, 1))
    x = mx.array(data)
    x = x.astype(mx.bfloat16) if kind == "bf16" else x
    mx.eval(x)
    return x


def canonical(data):
    return data.transpose(0, 3, 1, 2) if data.ndim == 4 else data


def jit(function):
    return mx.compile(function)


def host(x):
    return np.asarray(x)


def add(a, b):
    return a + b


def chain(x):
    return mx.exp(mx.sin(x) * 2 + 1)


def gelu(x):
    return nn.gelu(x)


def axpy(x, y):
    return 2 * x + y


def where_cast(x, y):
    steps = (x * 10).astype(mx.int32)
    # The remainder of an even number is 0 whatever its sign.
    return mx.where(steps % 2 == 0, steps.astype(mx.float32), y) + (x > y).astype(mx.float32)


def sum_all(x):
    return mx.sum(x)


def mean_rows(x):
    return mx.mean(x, axis=1)


def mean_columns(x):
    return mx.mean(x, axis=0)


def softmax(x):
    return mx.softmax(x, axis=-1)


def layer_norm(x, scale, shift):
    return mx.fast.layer_norm(x, scale, shift, 1e-5)


def matmul(x, y):
    if x.dtype == mx.int32:
        raise common.Absent("MLX has no matrix product of integers")
    z = x @ y
    return z.astype(mx.float32) if z.dtype == mx.bfloat16 else z


def conv(x, kernel):
    return mx.conv2d(x, kernel, padding=1)


def conv_grad(x, kernel):
    return mx.grad(lambda x, kernel: mx.sum(conv(x, kernel) ** 2), (0, 1))(x, kernel)


POOL = nn.MaxPool2d(2)


def max_pool(x):
    return POOL(x)


def max_pool_grad(x):
    return mx.grad(lambda x: mx.sum(max_pool(x) ** 2))(x)


def cholesky(x):
    return mx.linalg.cholesky(x)


def qr(x):
    return tuple(mx.linalg.qr(x))


def svd(x):
    return tuple(mx.linalg.svd(x))


def solve(a, b):
    return mx.linalg.solve(a, b)


def sort(x):
    return mx.sort(x)


def argsort(x):
    return mx.argsort(x)


def take(x, places):
    return mx.take(x, places, axis=0)


def scatter_add(x, places, y):
    return x.at[places].add(y)


def uniform(key, n):
    return mx.random.uniform(shape=(n,), key=key)


def normal(key, n):
    return mx.random.normal((n,), key=key)


def counted(x, times):
    for _ in range(times):
        x = mx.sin(x) + 1
    return x


def mlp_forward(params, x):
    w1, b1, w2, b2, w3, b3 = params
    x = nn.relu(mx.addmm(b1, x, w1))
    x = nn.relu(mx.addmm(b2, x, w2))
    return mx.addmm(b3, x, w3)


def mlp_step(params, x, labels):
    return descend(lambda params: cross_entropy(mlp_forward(params, x), labels), params)


def cnn_forward(params, x):
    k1, k2, w, b = params
    x = max_pool(nn.relu(conv(x, k1)))
    x = max_pool(nn.relu(conv(x, k2)))
    return mx.mean(x, axis=(1, 2)) @ w + b


def cnn_step(params, x, labels):
    return descend(lambda params: cross_entropy(cnn_forward(params, x), labels), params)


def transformer_forward(params, x):
    s1, b1, qkv, out, s2, b2, up, down = params
    x = x + attention(layer_norm(x, s1, b1) @ qkv) @ out
    return x + nn.gelu(layer_norm(x, s2, b2) @ up) @ down


def transformer_step(params, x, wanted):
    return descend(lambda params: mx.mean((transformer_forward(params, x) - wanted) ** 2), params)


def attention(qkv):
    batch, length, width = qkv.shape
    size = width // 12
    q, k, v = mx.split(qkv.reshape(batch, length, 12, size).transpose(0, 2, 1, 3), 3, axis=1)
    mixed = mx.fast.scaled_dot_product_attention(q, k, v, scale=size**-0.5)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, width // 3)


def cross_entropy(logits, labels):
    return nn.losses.cross_entropy(logits, labels, reduction="mean")


def descend(loss, params):
    value, grads = mx.value_and_grad(loss)(list(params))
    return [p - 0.01 * g for p, g in zip(params, grads)], value


def upload(inputs):
    [(data, _)] = inputs
    return lambda: [np.asarray(mx.array(data)[-1:])]


def download(inputs):
    [(data, kind)] = inputs
    x = array(data, kind)
    return lambda: [host(x)]


def processes(inputs, processes, adds):
    a, b = [array(*x) for x in inputs]

    def work():
        for _ in range(adds):
            c = np.asarray(a + b)
        return c

    return lambda: common.all_at_once(work, processes)


def latency(inputs, samples):
    a, m = [array(*x) for x in inputs]
    return lambda: common.beside(lambda: np.asarray(m @ m), lambda: np.asarray(a + a), samples)


def first_call(inputs, pairs):
    [(data, kind)] = inputs
    x, numbers = array(data, kind), iter(range(1_000_000_000))

    def long_chain(number):
        def chain(x):
            for _ in range(pairs):
                x = mx.sin(x + (1 + number * 1e-3))
            return x

        return chain

    return lambda: [np.asarray(mx.compile(long_chain(next(numbers)))(x))]
