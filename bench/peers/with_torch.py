"""The workloads in PyTorch, on the CPU and eager, which is how it runs unless it is told otherwise."""

import os

import numpy as np
import torch
import torch.nn.functional as F

import common

INFO = f"PyTorch {torch.__version__}, eager; threads: {torch.get_num_threads()}, its default"
ABSENT = {
    "latency_stream": "it has no streams of this kind",
    "compile": "it is measured eager",
    "first_call": "it is measured eager",
}


def array(data, kind):
    x = torch.tensor(data.astype(np.int64)) if kind == "u32" else torch.tensor(data)
    return x.bfloat16() if kind == "bf16" else x


def jit(function):
    return function


def host(x):
    return x.detach().numpy()


def add(a, b):
    return a + b


def chain(x):
    return torch.exp(torch.sin(x) * 2 + 1)


def gelu(x):
    return F.gelu(x)


def axpy(x, y):
    return 2 * x + y


def where_cast(x, y):
    steps = (x * 10).int()
    return torch.where(torch.fmod(steps, 2) == 0, steps.float(), y) + (x > y).float()


def sum_all(x):
    return x.sum()


def mean_rows(x):
    return x.mean(1)


def mean_columns(x):
    return x.mean(0)


def softmax(x):
    return F.softmax(x, -1)


def layer_norm(x, scale, shift):
    return F.layer_norm(x, x.shape[-1:], scale, shift, 1e-5)


def matmul(x, y):
    z = x @ y
    return z.float() if z.dtype == torch.bfloat16 else z


def conv(x, kernel):
    return F.conv2d(x, kernel, padding=1)


def conv_grad(x, kernel):
    x, kernel = x.detach().requires_grad_(), kernel.detach().requires_grad_()
    return torch.autograd.grad((conv(x, kernel) ** 2).sum(), (x, kernel))


def max_pool(x):
    return F.max_pool2d(x, 2)


def max_pool_grad(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad((max_pool(x) ** 2).sum(), x)[0]


def cholesky(x):
    return torch.linalg.cholesky(x)


def qr(x):
    return tuple(torch.linalg.qr(x))


def svd(x):
    return tuple(torch.linalg.svd(x))


def solve(a, b):
    return torch.linalg.solve(a, b)


def sort(x):
    return torch.sort(x).values


def argsort(x):
    return torch.argsort(x)


def take(x, places):
    return x[places]


def scatter_add(x, places, y):
    return x.index_add(0, places, y)


GENERATOR = torch.Generator().manual_seed(42)


def uniform(key, n):
    return torch.rand(n, generator=GENERATOR)


def normal(key, n):
    return torch.randn(n, generator=GENERATOR)


def counted(x, times):
    for _ in range(times):
        x = torch.sin(x) + 1
    return x


def mlp_forward(params, x):
    w1, b1, w2, b2, w3, b3 = params
    x = F.relu(torch.addmm(b1, x, w1))
    x = F.relu(torch.addmm(b2, x, w2))
    return torch.addmm(b3, x, w3)


def mlp_step(params, x, labels):
    return descend(lambda params: F.cross_entropy(mlp_forward(params, x), labels.long()), params)


def cnn_forward(params, x):
    k1, k2, w, b = params
    x = max_pool(F.relu(conv(x, k1)))
    x = max_pool(F.relu(conv(x, k2)))
    return x.mean((2, 3)) @ w + b


def cnn_step(params, x, labels):
    return descend(lambda params: F.cross_entropy(cnn_forward(params, x), labels.long()), params)


def transformer_forward(params, x):
    s1, b1, qkv, out, s2, b2, up, down = params
    x = x + attention(layer_norm(x, s1, b1) @ qkv) @ out
    return x + F.gelu(layer_norm(x, s2, b2) @ up) @ down


def transformer_step(params, x, wanted):
    return descend(lambda params: F.mse_loss(transformer_forward(params, x), wanted), params)


def attention(qkv):
    batch, length, width = qkv.shape
    q, k, v = qkv.view(batch, length, 3, 4, width // 12).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(q, k, v)
    return mixed.transpose(1, 2).reshape(batch, length, width // 3)


def descend(loss, params):
    params = [p.detach().requires_grad_() for p in params]
    value = loss(params)
    grads = torch.autograd.grad(value, params)
    with torch.no_grad():
        return [p - 0.01 * g for p, g in zip(params, grads)], value


def upload(inputs):
    [(data, _)] = inputs
    return lambda: [torch.tensor(data)[-1:].numpy()]


def download(inputs):
    [(data, kind)] = inputs
    x = array(data, kind)
    return lambda: [host(x)]


def processes(inputs, processes, adds):
    a, b = [array(*x) for x in inputs]

    def work():
        for _ in range(adds):
            c = (a + b).numpy()
        return c

    return lambda: common.all_at_once(work, processes)


def latency(inputs, samples):
    a, m = [array(*x) for x in inputs]
    return lambda: common.beside(lambda: (m @ m).numpy(), lambda: (a + a).numpy(), samples)
