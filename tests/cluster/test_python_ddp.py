#!/usr/bin/env python3
"""Two processes under DistributedDataParallel train as one process does on the joint batch; what goes
wrong in one of them all of them are told, and nothing is sent.

The same program is test and worker: "test_python_ddp.py worker RANK FOLDER ADDRESS" is one process.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import python_tests  # noqa: E402

python_tests.need("numpy", "torch")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import embps  # noqa: E402
import embps.torch  # noqa: E402

if not (dist.is_available() and dist.is_gloo_available()):
    python_tests.skip("this PyTorch has no gloo")

WORLD, WORDS, DIM, STEPS, BATCH = 2, 40, 6, 40, 8
# Optimizer of the table -> that of PyTorch, rate, whether PyTorch's gradients are sparse, clipped norm.
RUNS = {"sgd": (torch.optim.SGD, 0.5, False, 0.05), "adagrad": (torch.optim.Adagrad, 0.1, False, 0.05),
        "adam": (torch.optim.SparseAdam, 0.02, True, None)}


class Classifier(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.out = nn.Linear(DIM, 4)

    def forward(self, words):
        return self.out(torch.tanh(self.embedding(words)).mean(1))


def plain_model(sparse):
    torch.manual_seed(7)
    return Classifier(nn.Embedding(WORDS, DIM, sparse=sparse))


def batches():
    torch.manual_seed(8)
    words = (WORDS ** torch.rand(STEPS, BATCH, 3) - 1).long()
    return zip(words, torch.randint(0, 4, (STEPS, BATCH)))


def train(model, optimizers, share, clip, synchronize=lambda: None):
    """Losses of a process that takes batch[share]."""
    losses = []
    for words, labels in batches():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(words[share]), labels[share])
        loss.backward()
        if clip is not None:
            synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def worker(rank, folder, address):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    result = {}
    with embps.connect(address) as client:
        for name, (_, rate, sparse, clip) in RUNS.items():
            plain = plain_model(sparse)
            rows = embps.torch.Embedding(WORDS, DIM, client=client, name=name, optimizer=name)
            if rank == 0:
                rows.load(plain.embedding)
            dist.barrier()
            model = Classifier(rows)
            model.out.load_state_dict(plain.out.state_dict())
            dense, tables = embps.torch.split_parameters(model)
            try:  # who forgets it is told
                nn.parallel.DistributedDataParallel(model)
                sys.exit("DistributedDataParallel took the parameter of a table")
            except ValueError as error:
                if not re.search(f"table '{name}'.*ignore_in_ddp", str(error)):
                    raise
            model = nn.parallel.DistributedDataParallel(embps.torch.ignore_in_ddp(model))
            optimizer = embps.torch.Optimizer(tables, rate)
            losses = train(model, (torch.optim.SGD(dense, 0.1), optimizer), slice(rank, None, WORLD), clip,
                           optimizer.synchronize)
            result[name] = {"losses": losses, "rows": rows.dense().tolist()}
            dist.barrier()
        result["trouble"] = trouble(client, rank)
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(result), encoding="ascii")


class Replicated:
    """A number on the devices where it is needed, as GradScaler wants it: on the CPU alone."""

    def __init__(self, number):
        self._per_device_tensors = {number.device: number}

    def get(self, device):
        return self._per_device_tensors[device]


def unscale(gradients, found_inf, inverse):
    """What PyTorch 1.13 can do on GPUs alone."""
    for gradient in gradients:
        found_inf.fill_(float(bool(found_inf) or not gradient.isfinite().all()))
        gradient.mul_(inverse)


def scaler_skips(optimizer):
    """GradScaler.step without an unscale_ before, by its own loop over the gradients: whether it skipped."""
    loop = torch.cuda.amp.GradScaler._unscale_grads_
    found_inf = torch.zeros(1)
    with mock.patch.dict(loop.__globals__, _MultiDeviceReplicator=Replicated), \
            mock.patch.object(torch, "_amp_foreach_non_finite_check_and_unscale_", unscale):
        loop(None, optimizer, torch.tensor([0.5]), found_inf, False)
    if not found_inf:
        optimizer.step()
    return bool(found_inf)


class Troubled:
    """A table of zeros, and gradients of ones times a factor that each process gives."""

    def __init__(self, client, name):
        self.rows = embps.torch.Embedding(WORDS, DIM, client=client, name=name, init="zeros")
        self.optimizer = embps.torch.Optimizer(self.rows.parameters(), 1.0)

    def backward(self, ids, factor=1.0):
        self.optimizer.zero_grad()
        (self.rows(torch.tensor(ids)) * factor).sum().backward()

    def raised(self, call):
        """What both processes then know of what the call raised here."""
        try:
            call()
            return None
        except (RuntimeError, embps.Error) as error:
            return f"{type(error).__name__}: {error}"

    def moved(self):
        dist.barrier()
        return {at: row[0] for at, row in enumerate(self.rows.dense().tolist()) if any(row)}


def trouble(client, rank):
    """What each process has seen in each case."""
    seen = {}
    alone = float("inf") if rank == 0 else 1.0  # what is not finite in one process
    each = Troubled(client, "not finite")
    each.backward([2, 3], alone)
    seen["not finite"] = each.raised(each.optimizer.step), each.moved()
    each.backward([2, 3])
    seen["finite again"] = each.raised(each.optimizer.step), each.moved()

    each = Troubled(client, "left out by all")
    each.backward([1, 2])
    each.optimizer.synchronize()
    each.backward([3, 4] if rank == 0 else [5, 6])
    each.optimizer.step()
    seen["left out by all"] = each.moved()

    each = Troubled(client, "more after synchronize")
    each.backward([1])
    each.optimizer.synchronize()
    each.rows(torch.tensor([1, 2] if rank == 0 else [3])).sum().backward()
    each.optimizer.step()
    seen["more after synchronize"] = each.moved()

    each = Troubled(client, "scaler")
    skips = []
    for factor in (1.0, alone, 1.0):
        each.backward([1, 2] if rank == 0 else [2], factor)
        skips.append(scaler_skips(each.optimizer))
    seen["scaler"] = skips, each.moved()

    for name, synchronize in (("skipped by one", False), ("skipped by one after synchronize", True)):
        each = Troubled(client, name)
        for _ in range(2 if rank == 0 else 1):
            each.backward([1, 2])
            if synchronize and name not in seen:
                each.optimizer.synchronize()
                seen[name] = None
        seen[name] = each.raised(each.optimizer.step), each.moved()

    each = Troubled(client, "not pushed by one")
    each.backward([1, 2])
    with mock.patch.object(each.rows.table, "push_async", side_effect=embps.PeerGone("gone")) \
            if rank == 0 else mock.MagicMock():
        seen["not pushed by one"] = each.raised(each.optimizer.step), each.moved()
    return seen


class Processes(python_tests.Case):
    def test_two_processes_equal_one_on_the_joint_batch(self):
        address = self.serve()
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        workers = [self.start([sys.executable, __file__, "worker", rank, self.folder, address], env=environment)
                   for rank in range(WORLD)]
        self.assertEqual([process.wait() for process in workers], [0] * WORLD)
        results = [json.loads((self.folder / f"{rank}.json").read_text(encoding="ascii")) for rank in range(WORLD)]
        for name, (kind, rate, sparse, clip) in RUNS.items():
            model = plain_model(sparse)
            optimizers = (torch.optim.SGD(model.out.parameters(), 0.1), kind(model.embedding.parameters(), rate))
            joint = train(model, optimizers, slice(None), clip)
            halves = zip(*(result[name]["losses"] for result in results))
            self.assertLess(max(abs(sum(each) / WORLD - loss) for each, loss in zip(halves, joint)), 1e-5, name)
            for result in results:
                torch.testing.assert_close(torch.tensor(result[name]["rows"]), model.embedding.weight.detach(),
                                           rtol=1e-5, atol=1e-5)
        self.check_trouble([result["trouble"] for result in results])

    def check_trouble(self, seen):
        one, other = seen
        for same in set(one) - {"not pushed by one"}:
            self.assertEqual(one[same], other[same])
        raised, moved = one["not finite"]
        self.assertRegex(raised, "^InvalidArgument: .*row 2 of the table 'not finite'.*nothing was sent")
        self.assertEqual(moved, {})
        self.assertEqual(one["finite again"], [None, {"2": -1, "3": -1}])
        self.assertEqual(one["left out by all"], {row: -0.5 for row in "3456"})
        self.assertEqual(one["more after synchronize"], {"1": -1.5, "2": -0.5, "3": -0.5})
        self.assertEqual(one["scaler"], [[False, True, False], {"1": -0.5, "2": -1}])
        for name in ("skipped by one", "skipped by one after synchronize"):
            raised, moved = one[name]
            self.assertRegex(raised, r"^RuntimeError: .*same step.* process 0 .* 1 gradients unused; process 1 .* "
                                     r"0 gradients.*optimizer\.synchronize\(\)")
            self.assertEqual(moved, {})
        self.assertEqual(one["not pushed by one"][0], "PeerGone: gone")
        self.assertRegex(other["not pushed by one"][0], r"^RuntimeError: processes \[0\] could not push")
        self.assertEqual(other["not pushed by one"][1], {"1": -1})


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["worker"]:
        worker(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        unittest.main()
