"""Arguments that are no arrays, as the library wants them, or an InvalidArgument that names them.

Types are looked at here, and ranges where the library would cut a value or could not name it; what
else is wrong with a table's options is said by the library and the servers, who know all bounds.
NumPy's integers, floats and bools are as good as Python's.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from ctypes import c_bool, c_char_p, c_double, c_float, c_uint64, sizeof
from typing import Any, NamedTuple, Union

import numpy as np

from . import library
from .errors import InvalidArgument

Spec = Union[str, Sequence[Union[str, float]]]  # "adam", or ("adam", 0.9, 0.999)
Path = Union[str, "os.PathLike[str]"]
U32_MAX, U64_MAX = 2**32 - 1, 2**64 - 1
_DIM_MAX = 65536
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def number(name: str, value: Any, most: int, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidArgument(f"{name}: {value!r} is no integer")
    if not least <= value <= most:
        raise InvalidArgument(f"{name}: {value} is not in {least} to {most}")
    return int(value)


def real(name: str, value: Any) -> float:
    """A finite number, or something that has one, such as a tensor."""
    try:
        if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__float__"):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise InvalidArgument(f"{name}: {value!r} is no number") from None
    if not math.isfinite(found):
        raise InvalidArgument(f"{name}: {value!r} is not finite")
    return found


def single(name: str, value: Any) -> float:
    """real of which float32 makes a finite number."""
    found = real(name, value)
    if not math.isfinite(c_float(found).value):
        raise InvalidArgument(f"{name}: {value!r} is too large for float32")
    return found


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidArgument(f"{name}: {value!r} is neither True nor False")
    return bool(value)


def text(name: str, value: Any) -> bytes:
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgument(f"{name}: {value!r} is no text")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name}: {value!r} is no text: it has half a character "
                              "(a surrogate)") from None


def size(name: str, value: int | str) -> int:
    """A number of bytes, or text such as "256M"."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)([KMGT]?)", value)
        if not match:
            raise InvalidArgument(f"{name}: {value!r} is no size; 64M or 2G would be")
        value = int(match[1]) * _FACTORS[match[2]]
    return number(name, value, U64_MAX)


def milliseconds(name: str, seconds: Any) -> int:
    """At least 1, of seconds."""
    found = real(name, seconds)
    if not 0 < found <= U32_MAX / 1000:
        raise InvalidArgument(f"{name}: {seconds!r} s; more than 0 is wanted, and at most "
                              f"{U32_MAX // 1000}")
    return max(1, round(found * 1000))


def seconds_left(name: str, seconds: Any, other: str = ", or None,") -> float:
    """How long to wait, from 0. other: what else the argument may be."""
    found = real(name, seconds)
    if found < 0:
        raise InvalidArgument(f"{name}: {seconds!r} s; from 0 on{other} is wanted")
    return found


def path(name: str, value: Any) -> bytes:
    """A file's name in the system's bytes; ~ is the home folder."""
    try:
        found = os.fsencode(os.path.expanduser(os.fspath(value)))
    except (TypeError, UnicodeEncodeError):
        raise InvalidArgument(f"{name}: {value!r} is no path") from None
    if b"\0" in found:
        raise InvalidArgument(f"{name}: {value!r} is no path")
    return found


# A table's

def _set_spec(struct: library.TableOptions, name: str, spec: Any) -> None:
    """An initialiser or optimizer with its parameters, in the order of embps.h."""
    parts = [spec] if isinstance(spec, str) else spec
    if isinstance(parts, (bytes, bytearray)) or not isinstance(parts, Sequence) or not parts or not isinstance(
            parts[0], str):
        raise InvalidArgument(f"{name}: {spec!r} is neither a name nor a tuple of a name and numbers")
    if len(parts) > 1 + library.MAX_PARAMS:
        raise InvalidArgument(f"{name}: {len(parts) - 1} parameters; at most {library.MAX_PARAMS}")
    setattr(struct, name, text(name, parts[0]))
    setattr(struct, f"n_{name}_params", len(parts) - 1)
    for at, value in enumerate(parts[1:]):
        getattr(struct, f"{name}_params")[at] = real(f"{name}: parameter {at + 1}", value)


def _set_bounds(struct: library.TableOptions, bounds: Any) -> None:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise InvalidArgument(f"bounds: {bounds!r}; a lowest and a highest weight are wanted") from None
    struct.has_bounds = True
    struct.weight_min, struct.weight_max = real("bounds", low), real("bounds", high)
    if struct.weight_min > struct.weight_max:
        raise InvalidArgument(f"bounds: {low} is above {high}")


_PLAIN = ("precision", "state_precision", "per_row_steps", "l2", "clip_value", "clip_norm",
          "admit_after", "admit_shared", "admit_counters", "expire_after", "expire_rare_after",
          "expire_rare_below", "expire_floor", "expire_dry_run", "pull_format", "push_format")
_OF_A_CLIENT = ("pull_format", "push_format")  # and of no table
_TYPES = {name: kind for name, kind, *_ in library.TableOptions._fields_}


def _plain(name: str, value: Any) -> Any:
    """An option in the type that embps.h has for it."""
    kind = _TYPES[name]
    if kind is c_char_p:
        return None if value is None else text(name, value)
    if kind is c_bool:
        return flag(name, value)
    if kind is c_double:
        return real(name, value)
    return number(name, value, U64_MAX if kind is c_uint64 else U32_MAX)


def table_options(dim: Any, init: Any, optimizer: Any, seed: Any,
                  options: Mapping[str, Any]) -> library.TableOptions:
    """The struct of embps.h."""
    struct = library.TableOptions(size=sizeof(library.TableOptions))
    struct.dim = number("dim", dim, _DIM_MAX, 1)
    struct.seed = number("seed", seed, U64_MAX)
    _set_spec(struct, "init", init)
    _set_spec(struct, "optimizer", optimizer)
    for name, value in options.items():
        if name == "bounds":
            if value is not None:
                _set_bounds(struct, value)
        elif name == "pad_id":
            if value is not None:
                struct.has_pad, struct.pad_id = True, number(name, value, U64_MAX)
        elif name in _PLAIN:
            setattr(struct, name, _plain(name, value))
        else:
            raise InvalidArgument(f"option {name} is none of a table's; those are init, optimizer, "
                                  f"seed, bounds, pad_id, {', '.join(_PLAIN)}")
    return struct


class TableInfo(NamedTuple):
    """A table that servers have: client.table(info.name, info.dim, **info.options) opens it."""

    name: str
    dim: int
    options: dict[str, Any]  # as client.table takes them, all but the formats of pulls and pushes
    rows_created: int  # rows that came into being in this run of the servers


def _spec(struct: library.TableOptions, name: str) -> Spec:
    n = getattr(struct, f"n_{name}_params")
    kind = getattr(struct, name).decode(errors="replace")
    return (kind, *getattr(struct, f"{name}_params")[:n]) if n > 0 else kind


def table_info(name: bytes, struct: library.TableOptions, rows_created: int) -> TableInfo:
    """What the library tells of a table; copies."""
    options: dict[str, Any] = {
        "init": _spec(struct, "init"), "optimizer": _spec(struct, "optimizer"), "seed": struct.seed,
        "bounds": (struct.weight_min, struct.weight_max) if struct.has_bounds else None,
        "pad_id": struct.pad_id if struct.has_pad else None}
    for option in _PLAIN:
        if option not in _OF_A_CLIENT:
            value = getattr(struct, option)
            options[option] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return TableInfo(name.decode(errors="replace"), struct.dim, options, rows_created)
