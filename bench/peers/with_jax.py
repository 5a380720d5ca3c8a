"""The workloads in JAX, on its CPU client."""

import os

import jax
import jax.numpy as jnp
import numpy as np

import common

jax.config.update("jax_platforms", "cpu")
INFO = f"JAX {jax.__version__}; threads: its default, {os.cpu_count()} cores here"
ABSENT = {"latency_stream": "it has no streams of this kind"}


def array(data, kind):
    x = jnp.array(data)
    return x.astype(jnp.bfloat16) if kind == "bf16" else x


def jit(function):
    return jax.jit(function)


def host(x):
    return np.asarray(x)


def add(a, b):
    return a + b


def chain(x):
    return jnp.exp(jnp.sin(x) * 2 + 1)


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def axpy(x, y):
    return 2 * x + y


def where_cast(x, y):
    steps = (x * 10).astype(jnp.int32)
    even = jax.lax.rem(steps, 2) == 0
    return jnp.where(even, steps.astype(jnp.float32), y) + (x > y).astype(jnp.float32)


def sum_all(x):
    return jnp.sum(x)


def mean_rows(x):
    return jnp.mean(x, axis=1)


def mean_columns(x):
    return jnp.mean(x, axis=0)


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def layer_norm(x, scale, shift):
    return jax.nn.standardize(x, axis=-1, epsilon=1e-5) * scale + shift


def matmul(x, y):
    z = x @ y
    return z.astype(jnp.float32) if z.dtype == jnp.bfloat16 else z


def conv(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME")


def conv_grad(x, kernel):
    return jax.grad(lambda x, kernel: jnp.sum(conv(x, kernel) ** 2), (0, 1))(x, kernel)


def max_pool(x):
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def max_pool_grad(x):
    return jax.grad(lambda x: jnp.sum(max_pool(x) ** 2))(x)


def cholesky(x):
    return jnp.linalg.cholesky(x)


def qr(x):
    return tuple(jnp.linalg.qr(x))


def svd(x):
    return tuple(jnp.linalg.svd(x))


def solve(a, b):
    return jnp.linalg.solve(a, b)


def sort(x):
    return jnp.sort(x)


def argsort(x):
    return jnp.argsort(x)


def take(x, places):
    return jnp.take(x, places, axis=0)


def scatter_add(x, places, y):
    return x.at[places].add(y)


def uniform(key, n):
    return jax.random.uniform(jax.random.wrap_key_data(key), (n,))


def normal(key, n):
    return jax.random.normal(jax.random.wrap_key_data(key), (n,))


def counted(x, times):
    return jax.lax.fori_loop(0, times, lambda _, x: jnp.sin(x) + 1, x)


def mlp_forward(params, x):
    w1, b1, w2, b2, w3, b3 = params
    x = jax.nn.relu(x @ w1 + b1)
    x = jax.nn.relu(x @ w2 + b2)
    return x @ w3 + b3


def mlp_step(params, x, labels):
    return descend(lambda params: cross_entropy(mlp_forward(params, x), labels), params)


def cnn_forward(params, x):
    k1, k2, w, b = params
    x = max_pool(jax.nn.relu(conv(x, k1)))
    x = max_pool(jax.nn.relu(conv(x, k2)))
    return jnp.mean(x, axis=(2, 3)) @ w + b


def cnn_step(params, x, labels):
    return descend(lambda params: cross_entropy(cnn_forward(params, x), labels), params)


def transformer_forward(params, x):
    s1, b1, qkv, out, s2, b2, up, down = params
    x = x + attention(layer_norm(x, s1, b1) @ qkv) @ out
    return x + gelu(layer_norm(x, s2, b2) @ up) @ down


def transformer_step(params, x, wanted):
    return descend(lambda params: jnp.mean((transformer_forward(params, x) - wanted) ** 2), params)


def attention(qkv):
    batch, length, width = qkv.shape
    q, k, v = jnp.split(qkv.reshape(batch, length, 12, width // 12), 3, axis=2)
    return jax.nn.dot_product_attention(q, k, v).reshape(batch, length, width // 3)


def cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen)


def descend(loss, params):
    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value


def upload(inputs):
    [(data, _)] = inputs
    return lambda: [np.asarray(jnp.array(data)[-1:])]


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


def long_chain(pairs, number):
    def chain(x):
        for _ in range(pairs):
            x = jnp.sin(x + (1 + number * 1e-3))
        return x

    return chain


def compile(inputs, pairs):
    [(data, kind)] = inputs
    x, numbers = array(data, kind), iter(range(1_000_000_000))

    def run():
        jax.jit(long_chain(pairs, next(numbers))).lower(x).compile()
        return []

    return run


def first_call(inputs, pairs):
    [(data, kind)] = inputs
    x, numbers = array(data, kind), iter(range(1_000_000_000))
    return lambda: [np.asarray(jax.jit(long_chain(pairs, next(numbers)))(x))]
