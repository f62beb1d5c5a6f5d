#!/usr/bin/env python3
"""Two processes under DistributedDataParallel train as one process does on the joint batch.

The same program is test and worker: "test_python_ddp.py worker RANK FOLDER ADDRESS" is one process.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

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
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(result), encoding="ascii")


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


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["worker"]:
        worker(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        unittest.main()
