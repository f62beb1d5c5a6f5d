"""The optimizer of tables: it pushes gradients, and the server's optimizer applies them.

Which one that is, is an option of the table (optimizer="adam"). Here are what a program changes
between steps: the rate, the parameter groups, the count of steps.

Under torch.distributed the gradients of all processes are brought together first, row by row, and
averaged as DistributedDataParallel does with dense ones; then each process pushes its share of the
rows. So a row takes one step, as if one process had had the joint batch, whatever the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from ..arguments import real
from .rows import TableParameter, TableRows, sum_rows


def split_parameters(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """The parameters of a model: (those that PyTorch's optimizers train, those of tables)."""
    both: tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]] = ([], [])
    for parameter in model.parameters():
        both[isinstance(parameter, TableParameter)].append(parameter)
    return both


def ignore_in_ddp(model: torch.nn.Module) -> torch.nn.Module:
    """Tells DistributedDataParallel to leave the tables of a model alone; returns the model:
    DistributedDataParallel(embps.torch.ignore_in_ddp(model))."""
    names = [name for name, parameter in model.named_parameters() if isinstance(parameter, TableParameter)]
    names += getattr(model, "_ddp_params_and_buffers_to_ignore", [])
    wrapper: Any = torch.nn.parallel.DistributedDataParallel
    wrapper._set_params_and_buffers_to_ignore_for_model(model, names)
    return model


def _check_rate(rate: Any) -> None:
    if real("lr", rate) < 0:
        raise ValueError(f"lr: {rate} is negative")


class Optimizer(torch.optim.Optimizer):
    """Pushes what backward passes collected.

    params: parameters of embps.torch modules, or groups of them with rates of their own
    (split_parameters() tells them from others). lr: the rate, which schedulers may change.
    distributed: gradients of all processes of process_group are averaged; None: when torch.distributed
    has more than one. All processes must then call step() equally often.

    step() raises embps.InvalidArgument for a gradient that is not finite (nothing of that table was
    sent then), and what else a push raises.
    """

    trains_tables = True  # rows.py: no other may have the parameters of tables

    def __init__(self, params: Iterable[Any], lr: float, *, distributed: Optional[bool] = None,
                 process_group: Any = None) -> None:
        _check_rate(lr)
        self._distributed = distributed
        self._process_group = process_group
        self._together = False  # synchronize() was called since the last step
        super().__init__(params, {"lr": lr})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if isinstance(param_group, dict) and "lr" in param_group:
            _check_rate(param_group["lr"])
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if not isinstance(parameter, TableParameter):
                self.param_groups.pop()
                raise ValueError("embps.torch.Optimizer is for the parameters of embps.torch modules alone; "
                                 "embps.torch.split_parameters(model) tells them from others")

    def _rows(self) -> Iterable[tuple[dict[str, Any], torch.nn.Parameter, TableRows]]:
        for group in self.param_groups:
            for parameter in group["params"]:
                yield group, parameter, parameter.embps_rows

    def _world(self) -> int:
        if self._distributed is False or not (dist.is_available() and dist.is_initialized()):
            return 1
        return dist.get_world_size(self._process_group)

    @torch.no_grad()
    def synchronize(self) -> None:
        """Brings the gradients of all processes together. step() does so itself; to be called before
        it by programs that look at gradients in between (clip_grad_norm_, GradScaler.unscale_), since
        dense gradients are those of all processes by then."""
        if self._world() > 1:
            for _, _, rows in self._rows():
                self._average(rows)
        self._together = True

    def _average(self, rows: TableRows) -> None:
        group, world = self._process_group, self._world()
        on_gpu = dist.get_backend(group) == "nccl"
        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        found = rows.gradient()
        if found is None:
            found = torch.empty(0, dtype=torch.int64), torch.empty(0, rows.table.dim)
        ids, grad = found[0].to(device), found[1].to(device, torch.float32)
        counts = _gather(torch.tensor([len(ids)], device=device), world, group)
        sizes = [int(count) for count in counts]
        if max(sizes) == 0:
            return
        padded_ids = ids.new_zeros(max(sizes))
        padded_ids[:len(ids)] = ids
        padded = grad.new_zeros(max(sizes), grad.shape[1])
        padded[:len(ids)] = grad
        all_ids = [part[:size].cpu() for part, size in zip(_gather(padded_ids, world, group), sizes)]
        grads = [part[:size].cpu() for part, size in zip(_gather(padded, world, group), sizes)]
        total_ids, total = sum_rows(all_ids, grads)
        rows.set_gradient(total_ids, total / world)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Pushes the gradients that are there, each row as one step. Returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._together:
            self.synchronize()
        self._together = False
        world = self._world()
        futures, pushed = [], []
        for group, parameter, rows in self._rows():
            found = rows.gradient()
            if found is None:
                continue
            ids, grad = found
            state = self.state[parameter]
            state["step"] = state.get("step", 0) + 1
            if world > 1:
                pushed.append((rows.table, ids))
                mine = ids % world == dist.get_rank(self._process_group)
                ids, grad = ids[mine], grad[mine.to(grad.device)]
            rows.table.set_step(state["step"])
            futures.append(rows.table.push_async(ids.numpy(), grad.to("cpu", torch.float32).numpy(),
                                                 float(group["lr"])))
        for future in futures:
            future.result()
        if world > 1:
            dist.barrier(self._process_group)  # nobody pulls before all have pushed
            for table, ids in pushed:
                with table._changing(ids.numpy()):
                    pass  # by others too, which nobody here has told the table
        return loss


def _gather(tensor: Tensor, world: int, group: Any) -> list[Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(world)]
    dist.all_gather(parts, tensor, group=group)
    return parts
