#!/usr/bin/env python3
"""A small transformer that learns to write, its word vectors and its output layer in a table of embps.

    language_model.py --text book.txt --checkpoint model.pt
    language_model.py --text tokens.u16.bin.xz --checkpoint model.pt --steps 2000
    language_model.py --text book.txt --connect 127.0.0.1:50051

The text is words and punctuation; a name with .u16.bin is raw little-endian 16-bit token ids instead.
Files that end in .xz are unpacked. The commonest --vocabulary tokens are kept, the others are one.

Every --save-every steps a checkpoint is written, and when the program is killed and started again it goes
on from there. Which words come when depends on seed and step alone.

Without --connect the table is in this process and ends with it; its rows are in the checkpoint. With
--optimizer sgd a run that was interrupted has the losses of one that was not, to the last bit; what other
optimizers keep beside the rows begins anew.

With --connect and no --checkpoint everything is in one checkpoint of the servers (embps-server
--checkpoints): rows, what their optimizer keeps, and the layers. When servers and program were killed and are
started again, the run has the losses of one that was not interrupted, to the last bit, whatever the optimizer.
Servers that end in order make a checkpoint without layers, beyond which this program does not go on: they
are started with --resume and the name of the last one that has a state (embps checkpoint list DIR). When
the program alone is killed, the rows are up to --save-every steps ahead of the layers; so they are with a
--checkpoint of its own.
"""

import argparse
import collections
import contextlib
import io
import lzma
import math
import os
import pathlib
import re
import signal
import sys
import tempfile

import numpy
import torch
from torch import nn

import embps
import embps.torch

TABLE = "words"


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


def rate(text):
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: a number from 0 on is one")
    return number


def name(text):
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def check_paths(parser, arguments):
    """Ends the program where it could not read or write, now and not at the first checkpoint."""
    try:
        arguments.text.open("rb").close()
    except OSError as error:
        parser.error(f"--text: {error}")
    if arguments.checkpoint is not None and arguments.checkpoint.is_dir():
        parser.error(f"--checkpoint: {arguments.checkpoint} is a folder; the name of a file is wanted")
    for option, folder in (("--checkpoint", arguments.checkpoint and arguments.checkpoint.parent),
                           ("--data", arguments.data)):
        try:
            if folder is not None:
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            parser.error(f"{option}: {folder} cannot be written to: {error.strerror}")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path,
                        help="written; read when it is there (default, with --connect: the servers keep it)")
    parser.add_argument("--connect", type=name, metavar="ADDRESS", help="of a server that listens (default: none)")
    parser.add_argument("--data", type=name, help="folder for the table while this runs (default: a temporary one)")
    parser.add_argument("--memory", type=name, default="256M", help="of it, for rows (default %(default)s)")
    parser.add_argument("--optimizer", type=name, default="adagrad", help="of the table (default %(default)s)")
    parser.add_argument("--table-rate", type=rate, default=0.05, help="its rate (default %(default)s)")
    parser.add_argument("--rate", type=rate, default=0.002, help="of Adam, for layers (default %(default)s)")
    parser.add_argument("--steps", type=at_least_one, default=500, help="in all (default %(default)s)")
    parser.add_argument("--save-every", type=at_least_one, default=100, help="steps (default %(default)s)")
    parser.add_argument("--vocabulary", type=at_least_one, default=4000, help="tokens (default %(default)s)")
    parser.add_argument("--dim", type=at_least_one, default=64, help="width of the model (default %(default)s)")
    parser.add_argument("--layers", type=at_least_one, default=2)
    parser.add_argument("--heads", type=at_least_one, default=4)
    parser.add_argument("--context", type=at_least_one, default=32, help="tokens that are seen (default %(default)s)")
    parser.add_argument("--batch", type=at_least_one, default=16, help="pieces of text a step (default %(default)s)")
    parser.add_argument("--seed", type=any_seed, default=1)
    arguments = parser.parse_args()
    if arguments.checkpoint is None and arguments.connect is None:
        parser.error("--checkpoint is needed without --connect")
    if arguments.dim % arguments.heads != 0:
        parser.error(f"--heads: {arguments.heads} do not divide --dim {arguments.dim}")
    check_paths(parser, arguments)
    return arguments


@contextlib.contextmanager
def told(what, *kinds):
    """Ends the program with one line, and what it was about, where the block raises an error of these kinds."""
    try:
        yield
    except kinds as error:
        raise SystemExit(f"{what}: {' '.join(str(error).split())}") from None


def read_tokens(path):
    """The text as a list of words, or of numbers."""
    with told(f"--text {path}", OSError, EOFError, ValueError, lzma.LZMAError):
        raw = lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes()
        if ".u16.bin" in path.name:
            return numpy.frombuffer(raw, dtype="<u2").tolist()
    return re.findall(r"\w+|[^\w\s]", raw.decode(errors="replace").lower())


class LanguageModel(nn.Module):
    """Rows scaled by sqrt(dim), places, a causal transformer, and the rows again as output layer."""

    def __init__(self, arguments, client):
        super().__init__()
        dim = arguments.dim
        self.words = embps.torch.Embedding(
            arguments.vocabulary, dim, client=client, name=TABLE, scale_by_sqrt_dim=True,
            init=("normal", 0, dim**-0.5), optimizer=arguments.optimizer, seed=arguments.seed)
        self.places = nn.Parameter(torch.randn(arguments.context, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, arguments.heads, 4 * dim, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.layers = nn.TransformerEncoder(layer, arguments.layers, norm=nn.LayerNorm(dim))
        self.head = embps.torch.TiedLinear(self.words, bias=True)

    def forward(self, ids):
        """[B, T] ids -> [B, T, vocabulary] scores of the next one."""
        length = ids.shape[1]
        mask = torch.triu(torch.full((length, length), -math.inf), diagonal=1)
        return self.head(self.layers(self.words(ids) + self.places[:length], mask))


def batch_of_step(ids, step, arguments):
    """Pieces of the text, each with the ids that follow. Depends on seed and step alone."""
    generator = torch.Generator().manual_seed(arguments.seed * 1_000_003 + step)
    starts = torch.randint(0, len(ids) - arguments.context, (arguments.batch, 1), generator=generator)
    pieces = ids[starts + torch.arange(arguments.context + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def read_state(file, where):
    """What save has written."""
    with told(f"{where} has no state of this program", Exception):  # whatever bytes of others make of themselves
        try:
            state = torch.load(file)
        except Exception:
            raise ValueError("it is damaged, or another program's") from None
        if not isinstance(state, dict) or not {"step", "vocabulary", "model", "parts"} <= set(state):
            raise ValueError("it is of another program")
        return state


def load(arguments, client):
    """The state to go on from and where it is, or None."""
    if arguments.checkpoint is not None:
        path = arguments.checkpoint
        return (read_state(path, f"--checkpoint {path}") if path.exists() else None), path
    try:
        kept = client.checkpoint_state()
    except embps.NotFound:
        return None, "the servers"
    except embps.Unsupported as error:
        raise SystemExit(f"without --checkpoint the servers keep the layers, and these do not: {error}") from None
    if not kept and not any(table.name == TABLE and table.rows_created for table in client.tables()):
        return None, "the servers"  # somebody else made it, before this program had begun
    if not kept:
        raise SystemExit(f"the checkpoint that the servers stand at has rows of table {TABLE!r} and no layers: end "
                         "them, and start them with --resume and the name of the last checkpoint with a state (embps "
                         "checkpoint list DIR shows which have one), or to begin anew with --resume none, which "
                         "makes all tables empty")
    return read_state(io.BytesIO(kept), "the servers' checkpoint"), "the servers"


def save(arguments, client, state):
    """Whole or not at all: a kill in between leaves the checkpoint before."""
    if arguments.checkpoint is None:
        kept = io.BytesIO()
        torch.save(state, kept)
        client.checkpoint(kept.getvalue())
        return
    path = arguments.checkpoint
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def check_layers(dense, saved):
    """Raises ValueError for the first layer that is not as it was saved, where PyTorch tells all of them."""
    there = {key: value for key, value in saved.items() if torch.is_tensor(value) and not key.startswith("words.")}
    for key in sorted({*dense, *there}):
        shapes = [list(where[key].shape) if key in where else "missing" for where in (there, dense)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{key} is {shapes[0]} there and {shapes[1]} here; --dim, --layers, --context and "
                             "--vocabulary must be as they were")


def train(arguments, client):
    torch.manual_seed(arguments.seed)
    state, where = load(arguments, client)
    tokens = read_tokens(arguments.text)
    if len(tokens) <= arguments.context:
        raise SystemExit(f"{arguments.text}: {len(tokens)} tokens, less than one piece of {arguments.context}")
    if state is None:
        counts = collections.Counter(tokens).most_common(arguments.vocabulary - 1)
        vocabulary = ["?"] + [token for token, _ in counts]
    else:
        vocabulary = state["vocabulary"]
    numbers = {token: number for number, token in enumerate(vocabulary) if number > 0}
    ids = torch.tensor([numbers.get(token, 0) for token in tokens])

    model = LanguageModel(arguments, client)
    dense, tables = embps.torch.split_parameters(model)
    optimizers = [torch.optim.Adam(dense, arguments.rate), embps.torch.Optimizer(tables, arguments.table_rate)]
    schedulers = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
                  for optimizer in optimizers]
    first = 0
    if state is not None:
        first = state["step"]
        with told(f"--checkpoint, {where}: a state of another model", RuntimeError, ValueError):
            check_layers({key: value for key, value in model.named_parameters() if not key.startswith("words.")},
                         state["model"])
            model.load_state_dict(state["model"])
            for part, saved in zip(optimizers + schedulers, state["parts"]):
                part.load_state_dict(saved)
        print(f"goes on from step {first} of {where}", flush=True)

    inputs, targets = batch_of_step(ids, first, arguments)
    for step in range(first, arguments.steps):
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        inputs, targets = batch_of_step(ids, step + 1, arguments)
        model.words.prefetch(inputs)  # they come during the backward pass
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in optimizers + schedulers:
            part.step()
        if (step + 1) % arguments.save_every == 0 or step + 1 == arguments.steps:
            with contextlib.nullcontext() if arguments.connect else embps.torch.dense_rows(model):
                save(arguments, client,
                     {"step": step + 1, "vocabulary": vocabulary, "model": model.state_dict(),
                      "parts": [part.state_dict() for part in optimizers + schedulers]})
            print(f"step {step + 1} loss {loss.item():.6f}, saved", flush=True)
        elif step == first:
            print(f"step {step + 1} loss {loss.item():.6f}, saved every {arguments.save_every}", flush=True)
    return model, vocabulary, ids


@torch.no_grad()
def write(model, vocabulary, start, n):
    """n tokens that the model finds likely after those of start."""
    ids = start
    for _ in range(n):
        scores = model(ids[None, -len(start):])[0, -1]
        scores[0] = -math.inf  # the token that stands for rare ones
        scores[len(vocabulary):] = -math.inf  # a short text has fewer tokens than there are rows for
        ids = torch.cat([ids, torch.multinomial(torch.softmax(scores / 0.8, 0), 1)])
    return " ".join(str(vocabulary[number]) for number in ids[len(start):])


def run(arguments):
    with tempfile.TemporaryDirectory(prefix="embps-", dir=arguments.data) as folder:
        with told(f"--connect {arguments.connect}" if arguments.connect else "--memory, --data", embps.Error):
            client = embps.connect(arguments.connect or f"local:{folder}/tables", memory=arguments.memory)
        with told("language_model.py", embps.Error), client:
            model, vocabulary, ids = train(arguments, client)
            print(write(model, vocabulary, ids[:arguments.context], 30))


def main():
    arguments = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does, which removes the folder
    try:
        run(arguments)
    except KeyboardInterrupt:
        print("stopped by a signal; started again, it goes on from the last checkpoint", file=sys.stderr)
        raise SystemExit(7) from None


if __name__ == "__main__":
    main()
