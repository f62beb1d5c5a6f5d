"""Modules whose rows are on parameter servers: torch.nn.Embedding and EmbeddingBag, and a head.

What differs from torch.nn: `weight` stands for the table and holds no rows (rows.py); gradients are
always collected by row; embps.torch.Optimizer applies them; state_dict() holds which table it is, and
rows only within dense_rows(model). Everything else is torch.nn's own arithmetic, on the rows of the
batch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import number, real
from ..client import Client, Table
from .parameter import TableParameter
from .rows import TableRows

IDS_MAX = 2**63  # that a tensor can name


@contextlib.contextmanager
def dense_rows(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Within the block, state_dict() of the model is that of the same model of torch.nn: the rows of its
    tables are in it as "weight", and nothing else of them. Each of the two models loads it.

        with embps.torch.dense_rows(model):
            torch.save(model.state_dict(), path)
    """
    modules = [module for module in model.modules() if isinstance(module, _TableModule)]
    for module in modules:
        module.dense_states += 1
    try:
        yield model
    finally:
        for module in modules:
            module.dense_states -= 1


def _check_integers(name: str, given: Any) -> None:
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} are a tensor of int32 or int64, not a {type(given).__name__}")
    if given.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} are int32 or int64, not {given.dtype}")


def _rows_of(source: Any) -> Tensor:
    """The rows that a module, a tensor, or what is like one, has."""
    given = getattr(source, "weight", None) if isinstance(source, torch.nn.Module) else source
    if isinstance(given, TableParameter):
        raise ValueError(f"rows: those of {type(source).__name__} are in a table; its dense() has them")
    try:
        rows = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"rows: a {type(source).__name__} is neither a tensor nor an embedding of torch.nn: "
                         f"{error}") from None
    if rows.is_complex():
        raise ValueError(f"rows: floats are wanted, not {rows.dtype}")
    return rows


class _TableModule(torch.nn.Module):
    """What Embedding and EmbeddingBag share: the table, its state, rows of a batch."""

    _plain: type[torch.nn.Module]  # what it stands for in torch.nn

    def __init__(self, num_embeddings: Optional[int], embedding_dim: int, padding_idx: Optional[int],
                 max_norm: Optional[float], norm_type: float, scale_grad_by_freq: bool,
                 _weight: Optional[Tensor], device: Any, dtype: Any, table: Optional[Table],
                 client: Optional[Client], name: Optional[str], options: dict[str, Any]) -> None:
        super().__init__()
        if num_embeddings is not None:
            num_embeddings = number("num_embeddings", num_embeddings, IDS_MAX, least=1)
        if padding_idx is not None:
            padding_idx = number("padding_idx", padding_idx, IDS_MAX - 1, least=-IDS_MAX)
            if num_embeddings is not None:
                if not -num_embeddings <= padding_idx < num_embeddings:
                    raise ValueError("padding_idx must be within num_embeddings")
                padding_idx %= num_embeddings
            elif padding_idx < 0:
                raise ValueError("padding_idx must not be negative without num_embeddings")
        # torch.nn takes what is below 0 too, and turns rows around; its renorm does not.
        if max_norm is not None and max_norm != math.inf and real("max_norm", max_norm) < 0:
            raise ValueError(f"max_norm: {max_norm} is negative")
        if norm_type != math.inf and real("norm_type", norm_type) <= 0:
            raise ValueError(f"norm_type: {norm_type} is not above 0")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.dense_states = 0  # blocks of dense_rows that it is in
        if (table is None) == (client is None or name is None):
            raise ValueError("either table, or client and name, are wanted")
        for argument, given, kind in (("table", table, Table), ("client", client, Client)):
            if given is not None and not isinstance(given, kind):
                raise ValueError(f"{argument}: {given!r} is no embps.{kind.__name__}")
        if table is None:
            options = {"init": ("normal", 0, 1), "pad_id": padding_idx, **options}
            table = client.table(name, embedding_dim, **options)  # type: ignore[union-attr, arg-type]
        elif options:
            raise ValueError(f"options of a table that is open already: {', '.join(options)}")
        if table.dim != embedding_dim:
            raise ValueError(f"embedding_dim is {embedding_dim}, and the table's dim {table.dim}")
        self.rows = TableRows(table, device, dtype)
        self.rows.skip_id = padding_idx
        self.weight = self.rows.parameter
        if _weight is not None:
            self.load(_weight)

    @property
    def table(self) -> Table:
        return self.rows.table

    def __setattr__(self, name: str, value: Any) -> None:
        """As of any module, but that weight stays what stands for the table."""
        if name == "weight" and value is not self.rows.parameter:
            raise TypeError(f"weight stands for the table {self.table.name!r} and cannot be another; load() sets rows")
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}, table={self.table.name!r}"
        for key in ("padding_idx", "max_norm"):
            if getattr(self, key) is not None:
                text += f", {key}={getattr(self, key)}"
        return text

    # Rows of a batch

    def _distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Distinct ids on the CPU, and the place of each id among them."""
        _check_integers("ids", ids)
        distinct, places = torch.unique(ids.detach().to("cpu", torch.int64), return_inverse=True)
        if len(distinct) > 0:
            least, most = int(distinct[0]), int(distinct[-1])
            if least < 0 or (self.num_embeddings is not None and most >= self.num_embeddings):
                raise IndexError(f"ids from {least} to {most}; num_embeddings is {self.num_embeddings}")
        return distinct, places.to(self.weight.device)

    def _limit(self, ids: Tensor, rows: Tensor) -> Tensor:
        """As torch.nn does with max_norm: rows that are longer are made so long, in the table too."""
        if self.max_norm is None or len(rows) == 0:
            return rows
        limited = torch.renorm(rows, self.norm_type, 0, self.max_norm)
        longer = (limited != rows).any(1).cpu()
        if longer.any():
            self.rows.assign(ids[longer], limited[longer.to(rows.device)])
        return limited

    def _lookup(self, distinct: Tensor) -> Tensor:
        return self.rows.lookup(distinct, self._limit)

    def prefetch(self, input: Tensor) -> None:
        """Asks for the rows of the next batch now, so that they come while this one is computed. A
        forward pass with the same ids then has them; rows that this client changes in between, by whatever
        module, optimizer or call of a table, are read again, so the values are the same as without (what
        others push in between comes with the next pull)."""
        self.rows.pull_ahead(self._distinct(input)[0])

    # State

    def load(self, source: Any) -> None:
        """Rows from a torch.nn.Embedding or EmbeddingBag, or from a tensor [num_embeddings, D]; without
        num_embeddings, of any number. Raises ValueError for another shape, and for a value that is not finite;
        then no row was set."""
        weight = _rows_of(source)
        rows = self.num_embeddings if self.num_embeddings is not None else len(weight) if weight.dim() > 0 else 0
        if weight.shape != (rows, self.embedding_dim):
            raise ValueError(f"rows of shape {list(weight.shape)}; {[rows, self.embedding_dim]} are wanted")
        self.rows.assign_all(weight)

    def dense(self) -> Tensor:
        """All rows, [num_embeddings, D] float32 on the CPU."""
        if self.num_embeddings is None:
            raise ValueError("without num_embeddings nobody knows which rows there are")
        return self.rows.all_rows(self.num_embeddings)

    def _arguments(self) -> dict[str, Any]:
        return {"padding_idx": self.padding_idx, "max_norm": self.max_norm, "norm_type": self.norm_type,
                "scale_grad_by_freq": self.scale_grad_by_freq}

    def to_embedding(self) -> torch.nn.Module:
        """The same as a torch.nn module, with all rows."""
        plain: Any = self._plain
        return plain(self.num_embeddings, self.embedding_dim, sparse=True, _weight=self.dense(),
                     **self._arguments())

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **arguments: Any) -> Any:
        """A module with the rows of a tensor [N, D], or of a torch.nn module, written to its table.
        freeze: rows are not trained. arguments: as of the class (client= and name=, or table=)."""
        weight = _rows_of(embeddings)
        if weight.dim() != 2:
            raise ValueError(f"rows of shape {list(weight.shape)}; two dimensions are wanted")
        make: Any = cls
        module = make(*weight.shape, _weight=weight, **arguments)
        module.weight.requires_grad_(not freeze)
        return module

    def get_extra_state(self) -> dict[str, Any]:
        """Which table of which run of servers it is, and the last checkpoint that its client made."""
        return {**self._reference(), "checkpoint": self.table.client.last_checkpoint}

    def _reference(self) -> dict[str, Any]:
        """What a state without rows must agree with."""
        return {"cluster": self.table.client.cluster, "table": self.table.name, "dim": self.table.dim,
                "num_embeddings": self.num_embeddings}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[prefix + "weight"]
        if self.dense_states > 0:  # as torch.nn's, which takes no key that it does not know
            destination[prefix + "weight"] = self.dense()
            del destination[prefix + "_extra_state"]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        """Rows where there are some, also of a torch.nn module's state; without, the table must be the
        one that was saved."""
        del local_metadata
        weight, extra = prefix + "weight", prefix + "_extra_state"
        if weight in state_dict:
            try:
                self.load(state_dict[weight])
            except ValueError as error:
                error_msgs.append(f"{weight}: {error}")
        elif extra not in state_dict:
            missing_keys.append(weight)
        elif not isinstance(state_dict[extra], dict):
            error_msgs.append(f"{extra}: {state_dict[extra]!r} does not say which table it is of")
        elif {**state_dict[extra], "checkpoint": None} != {**self._reference(), "checkpoint": None}:
            error_msgs.append(f"{prefix}: the state is of {state_dict[extra]}, without rows; this is "
                              f"{self._reference()}")
        if strict:
            unexpected_keys += [key for key in state_dict
                                if key.startswith(prefix) and key not in (weight, extra)]


class Embedding(_TableModule):
    """torch.nn.Embedding with its rows in a table.

    num_embeddings: ids are below it; None: any id from 0. embedding_dim: D. padding_idx, max_norm,
    norm_type, scale_grad_by_freq, device, dtype: as torch.nn's; sparse: always so.
    table: one that is open; or client, name and options of client.table (optimizer=, init=, seed=,
    ...): opened here. init is ("normal", 0, 1) unless given, as torch.nn's; row padding_idx is zeros.
    scale_by_sqrt_dim: what comes out is multiplied by sqrt(D).

    forward(input): ids of any shape -> [*input.shape, D].
    """

    _plain = torch.nn.Embedding

    def __init__(self, num_embeddings: Optional[int], embedding_dim: int, padding_idx: Optional[int] = None,
                 max_norm: Optional[float] = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 sparse: bool = True, _weight: Optional[Tensor] = None, device: Any = None, dtype: Any = None,
                 *, table: Optional[Table] = None, client: Optional[Client] = None,
                 name: Optional[str] = None, scale_by_sqrt_dim: bool = False, **options: Any) -> None:
        del sparse
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
                         _weight, device, dtype, table, client, name, options)
        self.scale_by_sqrt_dim = scale_by_sqrt_dim

    def forward(self, input: Tensor) -> Tensor:
        distinct, places = self._distinct(input)
        out = F.embedding(places, self._lookup(distinct), scale_grad_by_freq=self.scale_grad_by_freq)
        return out * math.sqrt(self.embedding_dim) if self.scale_by_sqrt_dim else out

    def head(self, hidden: Tensor, ids: Optional[Tensor] = None) -> Tensor:
        """Scores of ids, distinct ones [V], by the same rows: hidden [*, D] -> [*, V]. Without ids, of all
        num_embeddings: every step then moves the whole table, which a small vocabulary can afford. Raises
        ValueError for ids of another shape, and for one that is there twice."""
        if ids is None:
            if self.num_embeddings is None:
                raise ValueError("without num_embeddings a head needs ids")
            ids = torch.arange(self.num_embeddings)
        distinct, places = self._distinct(ids)
        if ids.shape != distinct.shape:
            raise ValueError(f"ids of shape {list(ids.shape)}, of which {len(distinct)} are distinct; a head wants "
                             "distinct ones, [V]")
        rows = self._lookup(distinct)
        return F.linear(hidden, rows if torch.equal(distinct, ids.to("cpu")) else F.embedding(places, rows))


class TiedLinear(torch.nn.Module):
    """An output layer that shares the rows of an Embedding; bias: one of its own, [num_embeddings].

    forward(hidden, ids=None): as Embedding.head, and the bias. The embedding is no sub-module of this
    one, so that its state is there once.
    """

    def __init__(self, embedding: Embedding, bias: bool = False) -> None:
        super().__init__()
        if not isinstance(embedding, Embedding):
            raise ValueError(f"embedding: a {type(embedding).__name__} of {type(embedding).__module__} is no "
                             "embps.torch.Embedding")
        self._embedding = (embedding,)
        if bias and embedding.num_embeddings is None:
            raise ValueError("a bias needs num_embeddings")
        self.bias = torch.nn.Parameter(torch.zeros(embedding.num_embeddings or 0)) if bias else None

    def forward(self, hidden: Tensor, ids: Optional[Tensor] = None) -> Tensor:
        scores = self._embedding[0].head(hidden, ids)
        if self.bias is None:
            return scores
        return scores + (self.bias if ids is None else self.bias[ids])


class EmbeddingBag(_TableModule):
    """torch.nn.EmbeddingBag with its rows in a table: sums, means or maxima of bags of rows.

    Arguments as Embedding's and torch.nn.EmbeddingBag's; mode: "mean", "sum" or "max".
    forward(input, offsets=None, per_sample_weights=None): bags are the rows of input [B, L], or parts of
    input [n] that begin at offsets [B]; per_sample_weights like input, for "sum" alone -> [B, D].
    """

    _plain = torch.nn.EmbeddingBag

    def __init__(self, num_embeddings: Optional[int], embedding_dim: int, max_norm: Optional[float] = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                 sparse: bool = True, _weight: Optional[Tensor] = None, include_last_offset: bool = False,
                 padding_idx: Optional[int] = None, device: Any = None, dtype: Any = None, *,
                 table: Optional[Table] = None, client: Optional[Client] = None, name: Optional[str] = None,
                 **options: Any) -> None:
        del sparse
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"mode: {mode!r}; sum, mean and max are possible")
        if scale_grad_by_freq and mode == "max":
            raise ValueError("scale_grad_by_freq does not go with max")
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
                         _weight, device, dtype, table, client, name, options)
        self.mode, self.include_last_offset = mode, include_last_offset

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "mode": self.mode, "include_last_offset": self.include_last_offset}

    def forward(self, input: Tensor, offsets: Optional[Tensor] = None,
                per_sample_weights: Optional[Tensor] = None) -> Tensor:
        distinct, places = self._distinct(input)
        padding = None
        if self.padding_idx is not None:
            found = (distinct == self.padding_idx).nonzero()
            padding = int(found[0]) if len(found) > 0 else None
        rows = self._lookup(distinct)
        if len(distinct) == 0:  # torch.nn's kernel wants a row, used or not
            rows = rows.new_zeros(1, self.embedding_dim)
        if offsets is not None:
            _check_integers("offsets", offsets)
            offsets = offsets.to(rows.device, torch.int64)
        return F.embedding_bag(places, rows, offsets, None, 2.0, self.scale_grad_by_freq, self.mode, False,
                               per_sample_weights, self.include_last_offset and offsets is not None,
                               padding)
