"""The optimizer of tables: it pushes gradients, and the server's optimizer applies them.

Which one that is, is an option of the table (optimizer="adam"). Here are what a program changes
between steps: the rate, the parameter groups, the count of steps.

A table takes one step at a time, so the gradients of all its modules are one push. Under
torch.distributed those of all processes are brought together first, row by row, and averaged as
DistributedDataParallel does with dense ones; then each process pushes its share of the rows. So a row
takes one step, as if one process had had the joint batch, whatever the optimizer.

Before anything is sent all processes tell each other what they are about to do (_Plan), so that all go
on or all raise the same: a gradient that is not finite on one of them, or one that went on while
another made a step.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Callable, NoReturn, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from ..arguments import real
from ..client import Table
from ..errors import InvalidArgument
from .parameter import TableParameter
from .rows import TableRows, sum_rows

_SYNCHRONIZE, _STEP = 1, 2  # calls that processes make together
# Options of groups that PyTorch's optimizers have and this one has not: what they say is the table's.
_OF_TABLES = {"weight_decay", "momentum", "dampening", "nesterov", "betas", "eps", "alpha", "centered", "amsgrad",
              "lr_decay", "rho", "initial_accumulator_value", "maximize", "etas", "step_sizes", "lambd", "t0",
              "momentum_decay"}


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


class _Part:
    """A table, and what of it the optimizer has: the parameters of one module or more."""

    def __init__(self) -> None:
        self.groups: list[dict[str, Any]] = []
        self.parameters: list[TableParameter] = []

    @property
    def rows(self) -> TableRows:
        """Those that have the gradient once it is brought together."""
        return self.parameters[0].embps_rows

    @property
    def table(self) -> Table:
        return self.rows.table

    def join(self) -> None:
        """The gradients of all modules, summed, are the first one's."""
        for parameter in self.parameters[1:]:
            found = parameter.embps_rows.take_gradient()
            if found is None:
                continue
            first = self.rows.gradient()
            if first is not None:
                found = sum_rows([first[0], found[0]], [first[1], found[1].to(first[1])])
            self.rows.set_gradient(*found)

    def rate(self) -> float:
        rates = [group["lr"] for group in self.groups]
        if any(rate != rates[0] for rate in rates):
            raise ValueError(f"lr: parameters of the table {self.table.name!r} are in groups with the rates "
                             f"{', '.join(map(str, rates))}; a table makes a step at one rate")
        return float(rates[0])

    def plan(self) -> list[int]:
        """What this process is to say of the table: whether its gradient is one that other processes do not
        have yet, whether there is one at all, even without rows, of how many rows, and the id of a row with a
        value that is not finite, or -1."""
        found = self.rows.gradient()
        grad = self.parameters[0].grad
        fresh = found is not None and not getattr(grad, "common", False)
        return [int(fresh), int(grad is not None), 0 if found is None else len(found[0]), self.bad_id()]

    def bad_id(self) -> int:
        found = self.rows.gradient()
        if found is None:
            return -1
        bad = (~found[1].to(torch.float32).isfinite()).any(1).nonzero()
        return int(found[0][bad[0, 0].item()]) if len(bad) > 0 else -1


class Optimizer(torch.optim.Optimizer):
    """Pushes what backward passes collected.

    params: parameters of embps.torch modules, or groups of them with rates of their own
    (split_parameters() tells them from others). lr: the rate, which schedulers may change; all modules on
    one table have the same. distributed: gradients of all processes of process_group are averaged; None:
    when torch.distributed has more than one. All processes must then call step() equally often.

    step() raises embps.InvalidArgument for a gradient that is not finite (nothing was sent then, and all
    processes raise it), RuntimeError where processes are not at the same step, or another one could not
    push its share, and what else a push raises.
    """

    trains_tables = True  # parameter.py: no other may have the parameters of tables

    def __init__(self, params: Iterable[Any], lr: float, *, distributed: Optional[bool] = None,
                 process_group: Any = None) -> None:
        _check_rate(lr)
        self._distributed = distributed
        self._process_group = process_group
        self._unscaled: Callable[[], Any] = lambda: None  # what GradScaler.unscale_ last brought
        super().__init__(params, {"lr": lr})

    def __reduce__(self) -> Any:
        raise TypeError("an optimizer of tables cannot be copied or pickled; state_dict() has what it knows")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if isinstance(param_group, dict):
            if "lr" in param_group:
                _check_rate(param_group["lr"])
            for name in _OF_TABLES & param_group.keys():
                given = param_group[name]
                if not (given is None or isinstance(given, (bool, int, float)) and given == 0):
                    raise ValueError(f"{name}: not of a group but of the table, where its optimizer runs: optimizer=, "
                                     "l2= and what else client.table has")
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if not isinstance(parameter, TableParameter):
                self.param_groups.pop()
                raise ValueError("embps.torch.Optimizer is for the parameters of embps.torch modules alone; "
                                 "embps.torch.split_parameters(model) tells them from others")

    def _parts(self) -> list[_Part]:
        """The tables in the order of their parameters, which is that of all processes."""
        parts: dict[Any, _Part] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                table = parameter.embps_rows.table
                part = parts.setdefault((table._session, table.name), _Part())
                part.groups.append(group)
                part.parameters.append(parameter)
        return list(parts.values())

    def _world(self) -> int:
        if self._distributed is False or not (dist.is_available() and dist.is_initialized()):
            return 1
        return dist.get_world_size(self._process_group)

    @torch.no_grad()
    def synchronize(self) -> None:
        """Brings the gradients of all processes together, and those of several modules on one table, which
        the first of them has then. step() does so itself; to be called before it, by all processes, by
        programs that look at gradients in between (clip_grad_norm_) or may skip a step because of them.
        GradScaler's unscale_ and step do so themselves."""
        self._bring_together(self._parts(), _SYNCHRONIZE)

    def _unscaling(self, found_inf: Any) -> None:
        """GradScaler is about to look at a gradient; found_inf is new each time that it goes over all of them.
        What it looks at must be the gradient of all processes, so that all scale and skip alike."""
        if found_inf is not None and self._unscaled() is not found_inf:
            self._unscaled = weakref.ref(found_inf)
            self.synchronize()

    def _bring_together(self, parts: list[_Part], call: int) -> list[list[int]]:
        """What all processes say of each part together: as _Part.plan, of gradients that are common."""
        for part in parts:
            part.join()
        plans = [part.plan() for part in parts]
        if self._world() == 1:
            return plans
        # gradients that were dropped, in any table: processes need not have the same tables in a batch
        dropped = max((row.embps_rows.dropped() for part in parts for row in part.parameters), default=0)
        all_plans = self._exchange([[call, dropped, 0, 0], *plans])
        if not (all_plans[:, 0] == all_plans[0, 0]).all():
            _not_together(all_plans[:, 0].tolist())
        for at, part in enumerate(parts):
            theirs = all_plans[:, 1 + at]
            if theirs[:, 0].any():
                self._average(part, theirs[:, 2].tolist())
                plans[at] = part.plan()
            plans[at][1] = int(theirs[:, 1].max())
            if not theirs[:, 0].any():
                plans[at][3] = int(theirs[:, 3].max())
        return plans

    def _device(self) -> torch.device:
        on_gpu = dist.get_backend(self._process_group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

    def _exchange(self, mine: list[list[int]]) -> Tensor:
        """Numbers of all processes, [world, *], in their order."""
        sent = torch.tensor(mine, dtype=torch.int64, device=self._device())
        return torch.stack(_gather(sent, self._world(), self._process_group)).cpu()

    def _average(self, part: _Part, sizes: list[int]) -> None:
        """sizes: how many rows the gradient of each process has."""
        group, world, device = self._process_group, self._world(), self._device()
        found = part.rows.gradient()
        if found is None:
            found = torch.empty(0, dtype=torch.int64), torch.empty(0, part.table.dim)
        ids, grad = found[0].to(device), found[1].to(device, torch.float32)
        padded_ids = ids.new_zeros(max(sizes))
        padded_ids[:len(ids)] = ids
        padded = grad.new_zeros(max(sizes), grad.shape[1])
        padded[:len(ids)] = grad
        all_ids = [rows[:size].cpu() for rows, size in zip(_gather(padded_ids, world, group), sizes)]
        grads = [rows[:size].cpu() for rows, size in zip(_gather(padded, world, group), sizes)]
        total_ids, total = sum_rows(all_ids, grads)
        part.rows.set_gradient(total_ids, total / world, common=True)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Pushes the gradients that are there, each row as one step. Returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        parts = self._parts()
        rates = [part.rate() for part in parts]
        plans = self._bring_together(parts, _STEP)
        for part, plan in zip(parts, plans):
            if plan[3] >= 0:
                raise InvalidArgument(f"the gradient of row {plan[3]} of the table {part.table.name!r} is not finite; "
                                      "nothing was sent", row_id=plan[3])
        if self._world() == 1:
            self._push(parts, rates, plans)
        else:
            self._push_shares(parts, rates, plans)
        for part in parts:
            for parameter in part.parameters:
                parameter.embps_rows.used()
        return loss

    def _push(self, parts: list[_Part], rates: list[float], plans: list[list[int]]) -> None:
        """Pushes this process's share, and waits for it."""
        world, futures = self._world(), []
        for part, rate, (_, touched, *_) in zip(parts, rates, plans):
            if not touched:
                continue
            step = 1 + max(self.state[parameter].get("step", 0) for parameter in part.parameters)
            for parameter in part.parameters:
                self.state[parameter]["step"] = step
            found = part.rows.gradient()
            if found is None:
                continue
            ids, grad = found
            if world > 1:
                mine = ids % world == dist.get_rank(self._process_group)
                ids, grad = ids[mine], grad[mine.to(grad.device)]
            if len(ids) > 0:
                part.table.set_step(step)
                futures.append(part.table.push_async(ids.numpy(), grad.to("cpu", torch.float32).numpy(), rate))
        for future in futures:
            future.result()

    def _push_shares(self, parts: list[_Part], rates: list[float], plans: list[list[int]]) -> None:
        """Returns when all processes have pushed, so that nobody pulls before; or all raise."""
        error: Optional[Exception] = None
        try:
            self._push(parts, rates, plans)
        except Exception as raised:  # to be raised when the others know of it
            error = raised
        failed = self._exchange([[error is not None]])[:, 0, 0]
        for part in parts:
            found = part.rows.gradient()
            if found is not None:
                with part.table._changing(found[0].numpy()):
                    pass  # by others too, of whom the table does not know
        if error is not None:
            raise error
        if failed.any():
            raise RuntimeError(f"processes {failed.nonzero()[:, 0].tolist()} could not push their share of this step, "
                               "and say why; the others have")


def _not_together(heads: list[list[int]]) -> NoReturn:
    """heads: of each process, what it called and how many gradients it dropped before."""
    names = {_SYNCHRONIZE: "synchronize()", _STEP: "step()"}
    told = "; ".join(f"process {rank} calls {names[call]} after it dropped {dropped} gradients unused"
                     for rank, (call, dropped, *_) in enumerate(heads))
    raise RuntimeError(f"processes are not at the same step of embps.torch.Optimizer: {told}. Nothing was sent. Where "
                       "one may skip a step because of its gradients, all call optimizer.synchronize() behind "
                       "backward(), see the same gradients and skip alike")


def _gather(tensor: Tensor, world: int, group: Any) -> list[Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(world)]
    dist.all_gather(parts, tensor, group=group)
    return parts
