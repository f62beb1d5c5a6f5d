"""The parameter that stands for a table in a model, and the gradient that it has.

A table is larger than a tensor may be, so the parameter holds no rows: its data is one zero seen as
[U, D]. It is one of its model's parameters all the same, so that optimizers, norms and
DistributedDataParallel meet it where they expect it. What would read or write its data would do so in
vain and say nothing, and is refused instead, by name: what is not known to go well does not go.

Whether it goes well may depend on who asks, which the caller's frame shows: Module.to() may replace the
data by as much on another device, and a program may not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .rows import TableRows

_MODULES = "torch.nn.modules.module"  # what moves, casts and saves parameters
_READS_ROWS = {"data", "T", "mT", "H", "mH", "real", "imag"}  # attributes
_WRITTEN = {"grad", "requires_grad"}
# Methods and functions that look at what it is, but not at its data; more begin with is_.
_HARMLESS = {"size", "dim", "ndimension", "numel", "nelement", "element_size", "stride", "storage_offset",
             "get_device", "has_names", "data_ptr", "requires_grad_", "retain_grad", "share_memory_", "__len__"}
_OF_MODULES = {"detach", "to", "type", "cpu", "cuda", "xpu", "ipu", "float", "double", "half", "bfloat16",
               "empty_like", "_has_compatible_shallow_copy_type"}


class RowGradient(Tensor):
    """The gradient of a TableParameter: a dense tensor as any other, but for two marks.

    forgotten: zero_grad(set_to_none=False) was here. It then has no rows, as a sparse gradient has none;
    without the mark it would be one whose values are zero, which is a step as any other.
    common: it is that of all processes and of all modules on the table.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[attr-defined]
    forgotten = False
    common = False

    def zero_(self) -> Tensor:
        self.forgotten = True
        return super().zero_()

    def __deepcopy__(self, memo: Any) -> Tensor:
        return memo.setdefault(id(self), self.clone())


class TableParameter(torch.nn.Parameter):
    """What stands for a table in a model; embps_rows: the TableRows that it is of."""

    embps_rows: TableRows

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What PyTorch does with it: refused, unless it is known to go well."""
        name = getattr(func, "__name__", "")
        caller = sys._getframe(1)
        if name == "__get__":
            name = getattr(func.__self__, "__name__", "data")
            allowed = name not in _READS_ROWS
            if name == "is_leaf":
                _check_optimizer(args[0], caller.f_locals.get("self"))
            elif name == "grad" and caller.f_code.co_name == "_unscale_grads_":
                _tell_optimizer(caller.f_locals)
        elif name == "__set__":
            name = getattr(func.__self__, "__name__", "data")
            allowed = name in _WRITTEN or (name == "data" and caller.f_globals.get("__name__") == _MODULES)
        elif name in _OF_MODULES:
            allowed = caller.f_globals.get("__name__") == _MODULES
        else:
            allowed = name in _HARMLESS or name.startswith(("is_", "_is_"))
        if name == "detach" and caller.f_globals.get("__name__") == "torch.distributed.utils":
            raise ValueError(f"torch.distributed cannot keep copies of {named(args[0])} in all processes: "
                             "DistributedDataParallel(embps.torch.ignore_in_ddp(model)) leaves it alone, and "
                             "embps.torch.Optimizer averages its gradient")
        if not allowed:
            raise RuntimeError(_refusal(name, _parameter(args, kwargs)))  # a TypeError of an operator is lost
        return super().__torch_function__(func, types, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"<what stands for {named(self)}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"what stands for {named(self)}, cannot be copied or pickled")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(memo)


def named(parameter: Any) -> str:
    return f"the table {parameter.embps_rows.table.name!r}, whose rows are on servers"


def _parameter(args: Any, kwargs: Any) -> Any:
    """The parameter that a call was given, maybe in a list."""
    for given in (*args, *(kwargs or {}).values()):
        if isinstance(given, TableParameter):
            return given
        if isinstance(given, (list, tuple)):
            found = _parameter(given, None)
            if found is not None:
                return found
    return None


def _refusal(name: str, parameter: Any) -> str:
    what = "a table, whose rows are on servers" if parameter is None else named(parameter)
    if "hook" in name:
        return (f"{name} of what stands for {what}: it would never be called; what backward() has collected is "
                "in weight.grad behind it, to be looked at and changed before step()")
    return (f"{name} of what stands for {what}: weight holds none of them. The module called with ids has rows with "
            "their gradient, and dense() all of them; load() sets them, init= what they begin with; TiedLinear is "
            "an output layer with the same rows; l2= of the table lets weights decay")


def _check_optimizer(parameter: Any, asks: Any) -> None:
    """Optimizers ask whether a parameter is a leaf when they are made."""
    if isinstance(asks, torch.optim.Optimizer) and not hasattr(asks, "trains_tables"):
        raise ValueError(f"{type(asks).__name__} cannot train {named(parameter)}: give its parameter to "
                         "embps.torch.Optimizer, and the others to this one (dense, tables = "
                         "embps.torch.split_parameters(model))")


def _tell_optimizer(known: Any) -> None:
    """GradScaler looks at the gradients of an optimizer, to unscale them and to skip its step."""
    optimizer = known.get("optimizer")
    if hasattr(optimizer, "trains_tables"):
        optimizer._unscaling(known.get("found_inf"))
