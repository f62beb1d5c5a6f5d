"""Modules for PyTorch whose rows are on parameter servers.

    import embps, embps.torch, torch

    client = embps.connect("local:tables")
    embedding = embps.torch.Embedding(50_000, 128, client=client, name="words", optimizer="adagrad")
    model = torch.nn.Sequential(embedding, ...)
    dense, tables = embps.torch.split_parameters(model)
    optimizers = torch.optim.Adam(dense, 1e-3), embps.torch.Optimizer(tables, 0.05)

The rest is a training loop as usual: zero_grad, backward, clip_grad_norm_, step on both optimizers.
Only calls that PyTorch 1.13 and 2 share are used.
"""

from .modules import Embedding, EmbeddingBag, TiedLinear, dense_rows
from .optimizer import Optimizer, ignore_in_ddp, split_parameters

__all__ = ["Embedding", "EmbeddingBag", "Optimizer", "TiedLinear", "dense_rows", "ignore_in_ddp",
           "split_parameters"]
