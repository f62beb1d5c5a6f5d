#!/usr/bin/env python3
"""Computes what optimizers do to a few rows in 100 steps, in float64, by formulas of its own.

    optim_vectors.py > optim_vectors.h    writes the vectors that test_optim_reference.c compares with
    optim_vectors.py --check FILE         whether FILE still holds what this program computes

The formulas are NumPy's; wherever PyTorch has the same optimizer with the same treatment of rows that
a step does not touch, its own result in float64 is compared with them to 1e-11, and its error in
float32 is printed. Needs numpy and torch (Debian: python3-numpy, python3-torch); exits with 77
without them.

Gradients and initial weights are fractions of 2^23 made from hashes, and rates fractions of 2^13, so
that C and Python have the same numbers to the last bit. Steps count from 1.
"""

import re
import sys

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

STEPS, ROWS, DIM = 100, 4, 19
MASK = 2**64 - 1


def mix(x):
    """The finaliser of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def number(step, row, column):
    """In [-1, 1), some columns smaller. Step 0: the initial weight."""
    x = mix((step * ROWS + row) * DIM + column)
    return ((x >> 40) - 2**23) / 2**23 / 2 ** (column % 4)


def touched(dense, step, row):
    """Row 0 always; in the sparse pattern row r about every (r + 1)-th step, the last not before 20."""
    if dense or row == 0:
        return True
    if row == ROWS - 1 and step < 20:
        return False
    return mix(1000000 + step * ROWS + row) % (row + 1) == 0


def rate(step):
    return (256 - step) / 8192


START = np.array([[number(0, r, c) for c in range(DIM)] for r in range(ROWS)])
GRADIENTS = [np.array([[number(s, r, c) for c in range(DIM)] for r in range(ROWS)])
             for s in range(1, STEPS + 1)]


class Row:
    """One row and its state. t: number of the step, from 1."""

    def __init__(self, weights, p):
        self.w = weights.copy()
        self.p = p
        self.m = np.zeros(DIM)
        self.v = np.full(DIM, p.get("initial_accumulator", 0.0))


def sgd(row, g, lr, t):
    row.w = row.w - lr * g


def momentum(row, g, lr, t):
    row.m = row.p["momentum"] * row.m + g
    row.w = row.w - lr * row.m


def nesterov(row, g, lr, t):
    row.m = row.p["momentum"] * row.m + g
    row.w = row.w - lr * (g + row.p["momentum"] * row.m)


def adagrad(row, g, lr, t):
    row.v = row.v + g**2
    row.w = row.w - lr * g / (np.sqrt(row.v) + row.p["eps"])


def rowwise_adagrad(row, g, lr, t):
    row.v = row.v + np.mean(g**2)
    row.w = row.w - lr * g / (np.sqrt(row.v) + row.p["eps"])


def rmsprop(row, g, lr, t):
    a = row.p["alpha"]
    row.v = a * row.v + (1 - a) * g**2
    row.w = row.w - lr * g / (np.sqrt(row.v) + row.p["eps"])


def moments(row, g, squares):
    b1, b2 = row.p["beta1"], row.p["beta2"]
    row.m = b1 * row.m + (1 - b1) * g
    row.v = b2 * row.v + (1 - b2) * squares


def adam(row, g, lr, t):
    moments(row, g, g**2)
    correction = np.sqrt(1 - row.p["beta2"] ** t) / (1 - row.p["beta1"] ** t)
    row.w = row.w - lr * correction * row.m / (np.sqrt(row.v) + row.p["eps"])


def adamw(row, g, lr, t):
    row.w = row.w * (1 - lr * row.p["weight_decay"])
    moments(row, g, g**2)
    m = row.m / (1 - row.p["beta1"] ** t)
    v = row.v / (1 - row.p["beta2"] ** t)
    row.w = row.w - lr * m / (np.sqrt(v) + row.p["eps"])


def partial_rowwise_adam(row, g, lr, t):
    moments(row, g, np.mean(g**2))
    m = row.m / (1 - row.p["beta1"] ** t)
    v = row.v / (1 - row.p["beta2"] ** t)
    row.w = row.w - lr * (m / (np.sqrt(v) + row.p["eps"]) + row.p["weight_decay"] * row.w)


def ftrl(row, g, lr, t):
    p = row.p
    sigma = (np.sqrt(row.v + g**2) - np.sqrt(row.v)) / lr
    row.m = row.m + g - sigma * row.w
    row.v = row.v + g**2
    w = -(row.m - np.sign(row.m) * p["l1"]) / ((p["beta"] + np.sqrt(row.v)) / lr + p["l2"])
    row.w = np.where(np.abs(row.m) <= p["l1"], 0.0, w)


ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
ADAM2 = {"beta1": 0.8, "beta2": 0.97, "eps": 1e-4}
# Formula, the defaults that the table should have, others.
OPTIMIZERS = {
    "sgd": (sgd, {}, {}),
    "momentum": (momentum, {"momentum": 0.9}, {"momentum": 0.6}),
    "nesterov": (nesterov, {"momentum": 0.9}, {"momentum": 0.6}),
    "adagrad": (adagrad, {"initial_accumulator": 0, "eps": 1e-10},
                {"initial_accumulator": 0.25, "eps": 1e-3}),
    "rowwise_adagrad": (rowwise_adagrad, {"initial_accumulator": 0, "eps": 1e-8},
                        {"initial_accumulator": 0.25, "eps": 1e-3}),
    "rmsprop": (rmsprop, {"alpha": 0.99, "eps": 1e-8}, {"alpha": 0.9, "eps": 1e-3}),
    "adam": (adam, ADAM, ADAM2),
    "partial_rowwise_adam": (partial_rowwise_adam, ADAM | {"weight_decay": 0},
                             ADAM2 | {"weight_decay": 0.05}),
    "adamw": (adamw, ADAM | {"weight_decay": 0.01}, ADAM2 | {"weight_decay": 0.3}),
    "ftrl": (ftrl, {"l1": 0, "l2": 0, "beta": 1, "initial_accumulator": 0},
             {"l1": 0.75, "l2": 0.5, "beta": 0.25, "initial_accumulator": 0.1}),
}
USES_STEP = {"adam", "adamw", "partial_rowwise_adam"}


def cases():
    """(name, parameters, are they the defaults, dense, do rows count their own steps)"""
    for name, (_, defaults, others) in OPTIMIZERS.items():
        yield name, defaults, True, True, False
        yield name, others, False, False, False
        if name in USES_STEP:
            yield name, defaults, True, False, True


def compute(name, p, dense, own_steps):
    rows = [Row(START[r], p) for r in range(ROWS)]
    counts = [0] * ROWS
    for step in range(1, STEPS + 1):
        for r in range(ROWS):
            if touched(dense, step, r):
                counts[r] += 1
                OPTIMIZERS[name][0](rows[r], GRADIENTS[step - 1][r], rate(step),
                                    counts[r] if own_steps else step)
    return np.array([row.w for row in rows])


def torch_optimizer(name, p, tables):
    """PyTorch's optimizer of this name over the tables, or None."""
    betas = (p.get("beta1"), p.get("beta2"))
    if name == "sgd":
        return torch.optim.SGD(tables, lr=1.0)
    if name in ("momentum", "nesterov"):
        return torch.optim.SGD(tables, lr=1.0, momentum=p["momentum"], nesterov=name == "nesterov")
    if name == "adagrad":
        return torch.optim.Adagrad(tables, lr=1.0, eps=p["eps"],
                                   initial_accumulator_value=p["initial_accumulator"])
    if name == "rmsprop":
        return torch.optim.RMSprop(tables, lr=1.0, alpha=p["alpha"], eps=p["eps"])
    if name == "adam":
        return torch.optim.SparseAdam(tables, lr=1.0, betas=betas, eps=p["eps"])
    if name == "adamw":
        return torch.optim.AdamW(tables, lr=1.0, betas=betas, eps=p["eps"],
                                 weight_decay=p["weight_decay"])
    return None


def compute_by_torch(name, p, dense, own_steps, kind):
    """As compute. None where PyTorch has nothing of the kind.

    Where it takes sparse gradients, the rows are one table. Elsewhere each row is a parameter of its
    own, and those that a step does not touch have no gradient, which PyTorch leaves alone; then its
    steps count per row.
    """
    whole = name in ("sgd", "adagrad") or (name == "adam" and not own_steps)
    if name in USES_STEP and not whole and not dense and not own_steps:
        return None
    start = torch.tensor(START, dtype=kind)
    tables = [start.clone()] if whole else [start[r:r + 1].clone() for r in range(ROWS)]
    optimizer = torch_optimizer(name, p, tables)
    if optimizer is None:
        return None
    for step in range(1, STEPS + 1):
        which = [r for r in range(ROWS) if touched(dense, step, r)]
        g = torch.tensor(GRADIENTS[step - 1], dtype=kind)
        if whole:
            tables[0].grad = torch.sparse_coo_tensor([which], g[which], g.shape)
        else:
            for r in range(ROWS):
                one = torch.sparse_coo_tensor([[0]], g[r:r + 1]) if name == "adam" else g[r:r + 1]
                tables[r].grad = one if r in which else None
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
    return torch.cat(tables).double().numpy()


def error_of(weights, truth):
    """The largest difference in a row, relative to the row's largest weight; worst of the rows."""
    return np.max(np.max(np.abs(weights - truth), axis=1) / np.max(np.abs(truth), axis=1))


def all_results():
    for name, p, default, dense, own_steps in cases():
        result = compute(name, p, dense, own_steps)
        label = f"{name}, {'dense' if dense else 'sparse'}{', own steps' if own_steps else ''}"
        confirmed = compute_by_torch(name, p, dense, own_steps, torch.float64)
        if confirmed is None:
            print(f"{label}: by NumPy alone", file=sys.stderr)
        else:
            single = compute_by_torch(name, p, dense, own_steps, torch.float32)
            print(f"{label}: PyTorch agrees to {error_of(confirmed, result):.1e}, "
                  f"in float32 to {error_of(single, result):.1e}", file=sys.stderr)
            if error_of(confirmed, result) > 1e-11:
                sys.exit(f"{label}: PyTorch and the formula differ")
        yield name, p, default, dense, own_steps, confirmed is not None, result


def text():
    lines = [
        "/* Written by optim_vectors.py, which says what this is. */",
        "/* clang-format off */",
        "#ifndef TESTS_UNIT_PS_OPTIM_OPTIM_VECTORS_H",
        "#define TESTS_UNIT_PS_OPTIM_OPTIM_VECTORS_H",
        "",
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "",
        f"enum {{ VECTOR_STEPS = {STEPS}, VECTOR_ROWS = {ROWS}, VECTOR_DIM = {DIM} }};",
        "",
        "typedef struct optim_vectors {",
        "    const char *optimizer;",
        "    size_t n_params; /* 0: the defaults */",
        "    double params[4];",
        "    bool dense, own_steps;",
        "    double weights[VECTOR_ROWS * VECTOR_DIM];",
        "} optim_vectors_t;",
        "",
        "static const optim_vectors_t optim_vectors[] = {",
    ]
    for name, p, default, dense, own_steps, by_torch, result in all_results():
        given = [] if default else list(p.values())
        lines.append(f"    /* {name}: {'confirmed by PyTorch' if by_torch else 'NumPy'} */")
        lines.append(f'    {{"{name}", {len(given)}, {{{", ".join(map(repr, given or [0]))}}}, '
                     f'{str(dense).lower()}, {str(own_steps).lower()}, {{')
        numbers = [f"{x:.12g}" for x in result.ravel()]
        for i in range(0, len(numbers), 5):
            lines.append("        " + ", ".join(numbers[i:i + 5]) + ",")
        lines.append("    }},")
    lines += ["};", "", "#endif"]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        pattern = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")
        fresh = text()
        with open(sys.argv[2], encoding="ascii") as file:
            kept = file.read()
        same = pattern.sub("#", kept) == pattern.sub("#", fresh)
        a = np.array([float(x) for x in pattern.findall(kept)])
        b = np.array([float(x) for x in pattern.findall(fresh)])
        if not same or a.shape != b.shape or not np.allclose(a, b, rtol=1e-9, atol=1e-11):
            sys.exit(f"{sys.argv[2]} is not what {sys.argv[0]} writes")
    elif len(sys.argv) == 1:
        sys.stdout.write(text())
    else:
        sys.exit("usage: optim_vectors.py [--check FILE]")


if __name__ == "__main__":
    main()
