"""The rows of one table as PyTorch sees them: a parameter that stands for them, and its gradient.

The parameter holds no rows (parameter.py). What it has is a gradient: after a backward pass
`parameter.grad` is a dense tensor [U, D], one row for each id that the passes since the last zero_grad
touched, and TableRows says which. So clipping, scaling and accumulation work on it as on any other,
with the norm that the whole table's gradient has. A row whose gradient is zero is one of them.

A gradient that is taken away before an optimizer has used it is counted: processes that train together
must do so alike (optimizer.py).

Backward passes may run on several threads (one a device); a lock guards ids and gradient together.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Optional

import numpy as np
import torch
from torch import Tensor

from ..client import Table
from ..errors import InvalidArgument
from ..requests import Future
from .parameter import RowGradient, TableParameter

CHUNK_FLOATS = 1 << 22  # of rows that are read or written in one call by loads and exports
AHEAD_MAX = 8  # pulls ahead that are kept


class _Lookup(torch.autograd.Function):
    """Rows go in and come out; their gradient goes to collect. The anchor is what makes autograd come
    back here: rows are no leaf."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, rows: Tensor,  # type: ignore[override]
                collect: Callable[[Tensor], None]) -> Tensor:
        del anchor
        ctx.collect = collect
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        ctx.collect(grad)
        return None, None, None


class _Ahead:
    """Rows that were asked for before they are needed. What is in it is no tensor of inference_mode, in
    which they may be asked for: who needs them may be training."""

    def __init__(self, ids: Tensor, rows: Tensor, future: Future[Any]) -> None:
        self.ids, self.rows, self.future = ids, rows, future
        self.old = torch.zeros(len(ids), dtype=torch.bool)  # rows that were changed since


def host_memory(n: int, dim: int, device: torch.device) -> Tensor:
    """Memory for rows that go on to device: pinned for a GPU, so that the copy runs beside the
    program (PyTorch's allocator keeps it until that copy is over)."""
    return torch.empty(n, dim, dtype=torch.float32, pin_memory=device.type == "cuda")


class TableRows:
    """A table, the parameter that stands for it, and the gradient that is collected."""

    def __init__(self, table: Table, device: Any = None, dtype: Any = None) -> None:
        self.table = table
        data = torch.empty(0, table.dim, device=device, dtype=dtype)
        if not data.is_floating_point():
            raise TypeError(f"rows are floats, not {data.dtype}")
        self.parameter = TableParameter(data)
        self.parameter.embps_rows = self
        self.skip_id: Optional[int] = None  # its gradient is dropped
        self._ids = torch.empty(0, dtype=torch.int64)  # guarded by _lock; of parameter.grad
        self._unused = False  # guarded by _lock; there was a gradient since the last step
        self._dropped = 0  # guarded by _lock; gradients that were taken away unused
        self._lock = threading.Lock()
        self._ahead: list[_Ahead] = []  # guarded by _ahead_lock
        self._ahead_lock = threading.Lock()
        table._session.keepers.setdefault(table.name, weakref.WeakSet()).add(self)

    # Rows

    def pull(self, ids: Tensor) -> Tensor:
        """The rows of distinct ids [U], on the device of the parameter, [U, D], without gradient."""
        entry = self._take_ahead(ids)
        return self._to_device(self._pull_now(ids) if entry is None else self._arrived(entry))

    def _take_ahead(self, ids: Tensor) -> Optional[_Ahead]:
        with self._ahead_lock:
            for at, entry in enumerate(self._ahead):
                if torch.equal(entry.ids, ids):
                    return self._ahead.pop(at)
        return None

    def _pull_now(self, ids: Tensor) -> Tensor:
        rows = host_memory(len(ids), self.table.dim, self.parameter.device)
        self.table.pull(ids.numpy(), out=rows.numpy())
        return rows

    def _arrived(self, entry: _Ahead) -> Tensor:
        """The rows of a pull ahead; those that were changed since are read again."""
        entry.future.result()
        if entry.old.any():
            entry.rows[entry.old] = self._pull_now(entry.ids[entry.old])
        return entry.rows

    def _to_device(self, rows: Tensor) -> Tensor:
        like = self.parameter
        return rows.to(device=like.device, dtype=like.dtype, non_blocking=rows.is_pinned())

    def pull_ahead(self, ids: Tensor) -> None:
        """Asks for the rows of distinct ids that a later pull of the same ids will bring."""
        with torch.inference_mode(False), self._ahead_lock:
            ids, rows = ids.clone(), host_memory(len(ids), self.table.dim, self.parameter.device)
            self._ahead.append(_Ahead(ids, rows, self.table.pull_async(ids.numpy(), out=rows.numpy())))
            del self._ahead[:-AHEAD_MAX]

    def lookup(self, ids: Tensor, change: Optional[Callable[[Tensor, Tensor], Tensor]] = None) -> Tensor:
        """pull for a forward pass: the gradient of the result will be collected. change(ids, rows):
        what happens to rows that were pulled, outside of the graph."""
        with torch.no_grad():
            rows = self.pull(ids)
            if change is not None:
                rows = change(ids, rows)
        if not (torch.is_grad_enabled() and self.parameter.requires_grad):
            return rows
        anchor = torch.empty(0, requires_grad=True)
        return _Lookup.apply(anchor, rows, lambda grad: self.collect(ids, grad))

    def assign(self, ids: Tensor, rows: Tensor) -> None:
        """Replaces rows, [n, D] on any device."""
        self.table.assign(ids.numpy(), rows.detach().to("cpu", torch.float32).numpy())

    def changed(self, ids: np.ndarray) -> None:
        """These rows are not any more what a pull before this brings. The client's tables tell it of all
        that this client changes (Table._changing)."""
        with self._ahead_lock:
            if self._ahead:
                changed = torch.from_numpy(ids.reshape(-1).astype(np.int64))  # beyond int64 none is asked for
                for entry in self._ahead:
                    entry.old |= torch.isin(entry.ids, changed)

    def all_rows(self, n: int) -> Tensor:
        """Rows 0 to n - 1 on the CPU, float32, read in passing."""
        out = torch.empty(n, self.table.dim, dtype=torch.float32)
        for start, stop in self._chunks(n):
            self.table.pull(torch.arange(start, stop).numpy(), out=out[start:stop].numpy(), scan=True,
                            exact=True)
        return out

    def assign_all(self, rows: Tensor) -> None:
        """Replaces rows 0 to n - 1 by [n, D]; all, or none where a value is not finite."""
        for start, stop in self._chunks(len(rows)):
            bad = (~rows[start:stop].detach().to(torch.float32).isfinite()).any(1).nonzero()
            if len(bad) > 0:
                first = start + int(bad[0])
                raise InvalidArgument(f"load: row {first} has a value that is not finite; no row was set", row_id=first)
        for start, stop in self._chunks(len(rows)):
            self.assign(torch.arange(start, stop), rows[start:stop])

    def _chunks(self, n: int) -> list[tuple[int, int]]:
        step = max(1, CHUNK_FLOATS // self.table.dim)
        return [(start, min(n, start + step)) for start in range(0, n, step)]

    # Gradients

    def collect(self, ids: Tensor, grad: Tensor) -> None:
        """Adds the gradient [U, D] of the rows of distinct ids [U]."""
        with torch.no_grad():
            grad = grad.detach()
            if self.skip_id is not None:
                kept = ids != self.skip_id
                ids, grad = ids[kept], grad[kept.to(grad.device)]
            with self._lock:
                self._count_dropped()
                old = self._gradient()
                if old is not None:
                    ids, grad = sum_rows([old[0], ids], [old[1], grad])
                else:
                    grad = grad.clone(memory_format=torch.contiguous_format)  # others may see it
                self._set_gradient(ids, grad)

    def gradient(self) -> Optional[tuple[Tensor, Tensor]]:
        """ids [U] on the CPU and gradient [U, D], or None where nothing was collected since
        zero_grad."""
        with self._lock:
            return self._gradient()

    def set_gradient(self, ids: Tensor, grad: Tensor, common: bool = False) -> None:
        """Replaces what was collected. common: it is that of all processes."""
        with self._lock, torch.no_grad():
            self._set_gradient(ids, grad, common)

    def take_gradient(self) -> Optional[tuple[Tensor, Tensor]]:
        """gradient(), and then there is none: another parameter has it."""
        with self._lock:
            found = self._gradient()
            self.parameter.grad = None
            self._unused = False
            return found

    def dropped(self) -> int:
        """How many gradients were taken away unused, since this was asked or a step was made."""
        with self._lock:
            self._count_dropped()
            count, self._dropped = self._dropped, 0
            return count

    def used(self) -> None:
        """An optimizer has made its step with what was collected."""
        with self._lock:
            self._unused, self._dropped = False, 0

    def _count_dropped(self) -> None:
        if self._unused and self._gradient() is None:
            self._dropped += 1
            self._unused = False

    def _gradient(self) -> Optional[tuple[Tensor, Tensor]]:
        grad = self.parameter.grad
        # zero_grad takes the gradient away or fills it with zeros.
        if grad is None or len(grad) != len(self._ids) or (getattr(grad, "forgotten", False) and not grad.any()):
            return None
        return self._ids, grad

    def _set_gradient(self, ids: Tensor, grad: Tensor, common: bool = False) -> None:
        like = self.parameter
        self._ids, self._unused = ids, True
        collected = grad.to(dtype=like.dtype, device=like.device).as_subclass(RowGradient)
        collected.common = common
        with torch._C.DisableTorchFunction():  # type: ignore[attr-defined]
            like.grad = None
            like.data = torch.zeros(1, 1, dtype=like.dtype, device=like.device).expand(len(ids), self.table.dim)
            like.grad = collected


def sum_rows(ids: list[Tensor], grads: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The distinct ids of several lists, and the sums of their rows in the order of the lists."""
    if all(torch.equal(ids[0], other) for other in ids[1:]):
        total = grads[0].clone()
        for grad in grads[1:]:
            total += grad
        return ids[0], total
    distinct, places = torch.unique(torch.cat(ids), return_inverse=True)
    total = grads[0].new_zeros(len(distinct), grads[0].shape[1])
    return distinct, total.index_add_(0, places.to(total.device), torch.cat(grads))
