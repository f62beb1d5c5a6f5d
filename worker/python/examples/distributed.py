#!/usr/bin/env python3
"""Several processes that train one model: PyTorch keeps its layers equal, one table of embps has its rows.

    embps-server --data data --listen 127.0.0.1:50051 &
    distributed.py --connect 127.0.0.1:50051

The program starts --processes of itself, each of which takes its share of every batch; what they learn is made up.
Where a launcher started it (torchrun, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT) it is one of them,
on as many machines as there are:

    torchrun --standalone --nproc-per-node 2 distributed.py --connect 127.0.0.1:50051

The losses are those of --processes 1 with the same --batch, up to rounding, where the table is new in both.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

import embps
import embps.torch

CLASSES, WORDS_A_TEXT = 5, 20


def whole_number(least, most):
    """What reads an argument that is one."""
    def read(text):
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")
        return number
    return read


at_least_one = whole_number(1, 10**9)
any_seed = whole_number(0, 10**12)


def name(text):
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connect", metavar="ADDRESS", type=name, required=True, help="of a server that listens")
    parser.add_argument("--table", type=name, default="distributed", help="the name of the table (default %(default)s)")
    parser.add_argument("--processes", type=at_least_one, default=2, help="without a launcher (default %(default)s)")
    parser.add_argument("--steps", type=at_least_one, default=100, help="in all (default %(default)s)")
    parser.add_argument("--batch", type=at_least_one, default=64, help="texts a step, of all processes (default %(default)s)")
    parser.add_argument("--words", type=at_least_one, default=1000, help="in the vocabulary (default %(default)s)")
    parser.add_argument("--dim", type=at_least_one, default=16, help="of a row (default %(default)s)")
    parser.add_argument("--seed", type=any_seed, default=1)
    arguments = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else arguments.processes
    if arguments.batch % world != 0:
        parser.error(f"--batch: {world} processes cannot share {arguments.batch} equally")
    return arguments


class Classifier(nn.Module):
    """The mean of the words' rows, and a layer on it."""

    def __init__(self, arguments, client):
        super().__init__()
        self.words = embps.torch.EmbeddingBag(arguments.words, arguments.dim, client=client, name=arguments.table,
                                              optimizer="adagrad", init=("normal", 0, 0.1), seed=arguments.seed)
        self.out = nn.Linear(arguments.dim, CLASSES)

    def forward(self, texts):
        """[B, T] words -> [B, CLASSES] scores."""
        return self.out(self.words(texts))


def batch_of_step(step, arguments):
    """The same in all processes: texts, and the class that most of their words are of."""
    generator = torch.Generator().manual_seed(arguments.seed * 1_000_003 + step)
    texts = torch.randint(0, arguments.words, (arguments.batch, WORDS_A_TEXT), generator=generator)
    return texts, nn.functional.one_hot(texts % CLASSES, CLASSES).sum(1).argmax(1)


@contextlib.contextmanager
def connected(arguments):
    """A client in the block; an error of embps ends the program with one line."""
    try:
        with embps.connect(arguments.connect, wait=5) as client:
            yield client
    except embps.Error as error:
        raise SystemExit(f"--connect {arguments.connect}: {error}") from None


def train(arguments):
    """One process of a group that exists."""
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(arguments.seed)
    with connected(arguments) as client:  # each process is a client of its own
        model = Classifier(arguments, client)
        dense, tables = embps.torch.split_parameters(model)
        model = nn.parallel.DistributedDataParallel(embps.torch.ignore_in_ddp(model))
        optimizers = torch.optim.Adam(dense, 0.01), embps.torch.Optimizer(tables, 0.1)
        for step in range(arguments.steps):
            texts, labels = (part[rank::world] for part in batch_of_step(step, arguments))
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(texts), labels)
            loss.backward()
            optimizers[1].synchronize()  # so that the norm is that of all processes
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            if (step + 1) % 20 == 0 or step + 1 == arguments.steps:
                mean = loss.detach() / world
                torch.distributed.all_reduce(mean)
                if rank == 0:
                    print(f"step {step + 1} loss {mean.item():.4f}", flush=True)
        torch.distributed.barrier()  # no process leaves while another one needs it


def process(rank, arguments, folder):
    """One of the processes that main starts, which ends when that one does: by SIGINT, which PyTorch asks the system
    for, and which is ignored in a program that a script has started in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                                         world_size=arguments.processes)
    train(arguments)


def start(arguments):
    """Starts the processes and waits for them. None of them outlives this."""
    with tempfile.TemporaryDirectory(prefix="embps-") as folder:
        context = torch.multiprocessing.spawn(process, (arguments, folder), nprocs=arguments.processes, join=False)
        try:
            while not context.join():
                pass
        except torch.multiprocessing.ProcessExitedException as error:
            raise SystemExit(str(error) if error.signal_name else 1) from None  # 1: that process has said why
        finally:
            for one in context.processes:
                one.kill()
                one.join()


def main():
    arguments = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does, and so what it has started
    try:
        if "RANK" in os.environ:
            torch.distributed.init_process_group("gloo")
            train(arguments)
            return
        with connected(arguments) as client:
            Classifier(arguments, client)  # what cannot be is told once, and not by each process
        start(arguments)
    except KeyboardInterrupt:
        print("stopped by a signal", file=sys.stderr)
        raise SystemExit(7) from None


if __name__ == "__main__":
    main()
