"""Ids and rows as the library wants them, from whatever a program has, or an exception.

Arrays that are right already are not copied. Everything here looks at types, shapes and signs; that
values are finite is checked by the library, before it sends, in the pass that it makes anyway.
"""

from __future__ import annotations

import math
import operator
from ctypes import POINTER, c_float, c_uint8, c_uint64
from typing import Any

import numpy as np

from .errors import InvalidArgument

_ID_MAX = 2**64 - 1


def _ids_one_by_one(values: Any) -> np.ndarray:
    """Python integers of any size, in any nesting."""
    given = np.array(values, dtype=object)
    out = np.empty(given.shape, dtype=np.uint64)
    for at, value in np.ndenumerate(given):
        if isinstance(value, (bool, np.bool_)):
            raise InvalidArgument("ids: True and False are no ids")
        try:
            number = operator.index(value)
        except TypeError:
            raise InvalidArgument(f"ids: {value!r} is no integer") from None
        if not 0 <= number <= _ID_MAX:
            raise InvalidArgument(f"ids: {number} is not in 0 to 2**64 - 1")
        out[at] = number
    return out


def _array(name: str, values: Any, wanted: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"{name}: no array of {wanted}: {error}") from error


def as_ids(ids: Any) -> np.ndarray:
    """ids as uint64, C-contiguous, of the same shape. Integers of any width; no negative ones."""
    array = _array("ids", ids, "integers")
    if array.dtype.kind not in "iu":
        if array.size == 0 and not isinstance(ids, np.ndarray):
            return np.empty(array.shape, dtype=np.uint64)  # [] has a dtype by accident
        if isinstance(ids, np.ndarray) and array.dtype.kind != "O":
            raise InvalidArgument(f"ids: an array of {array.dtype}; integers are wanted")
        return _ids_one_by_one(ids)
    if array.dtype.kind == "i":
        if array.size and (least := int(array.min())) < 0:
            raise InvalidArgument(f"ids: {least} is negative")
        if array.dtype == np.int64:
            return np.require(array, np.int64, ["C", "A"]).view(np.uint64)
    return np.require(array, np.uint64, ["C", "A"])


def as_rows(rows: Any, shape: tuple[int | None, ...], what: str) -> np.ndarray:
    """rows as float32, C-contiguous, of exactly this shape; None: of any width there."""
    array = _array(what, rows, "numbers")
    if array.dtype.kind != "f" and not (array.size == 0 or
                                        (array.dtype.kind in "iu" and not isinstance(rows, np.ndarray))):
        raise InvalidArgument(f"{what}: an array of {array.dtype}; floats are wanted")
    wanted = str(list(shape)).replace("None", "K")
    if shape[-1] is None:
        shape = (*shape[:-1], array.shape[-1] if array.ndim == len(shape) else 0)
    if array.shape != shape and array.size + math.prod(width or 0 for width in shape) != 0:
        raise InvalidArgument(f"{what}: shape {list(array.shape)}; these ids and the table's dim make "
                              f"it {wanted}")
    with np.errstate(over="ignore"):  # what becomes infinite is found by the library, with its id
        return np.require(array, np.float32, ["C", "A"])


def as_counts(counts: Any, shape: tuple[int, ...]) -> np.ndarray:
    """counts as uint32, C-contiguous, of exactly this shape."""
    array = _array("counts", counts, "integers")
    if array.dtype.kind not in "iu" or array.shape != shape:
        raise InvalidArgument(f"counts: must be integers of shape {list(shape)}")
    if array.size and not (0 <= int(array.min()) and int(array.max()) < 2**32):
        raise InvalidArgument("counts: a number is not in 0 to 2**32 - 1")
    return np.require(array, np.uint32, ["C", "A"])


def as_out(out: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Memory for pulled rows: out itself if it fits, a new array without out."""
    if out is None:
        return np.empty(shape, dtype=np.float32)
    if not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.shape != shape:
        raise InvalidArgument(f"out: must be a float32 array of shape {list(shape)}")
    if not out.flags.carray:
        raise InvalidArgument("out: must be C-contiguous, aligned and writeable")
    return out


def id_pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(POINTER(c_uint64))


def row_pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(POINTER(c_float))


def state_pointer(array: np.ndarray | None) -> Any:
    return None if array is None else array.ctypes.data_as(POINTER(c_uint8))
