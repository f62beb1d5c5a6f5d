"""embps: tables of embeddings on parameter servers.

    import embps

    with embps.connect("local:tables") as client:
        table = client.table("words", 64, optimizer="adagrad", init=("uniform", -0.1, 0.1))
        rows = table.pull([7, 42])                   # [2, 64] float32
        table.push([7, 42], gradients, lr=0.05)      # the server's optimizer applies them

embps.torch has modules for PyTorch (imported when asked for: `import embps.torch`).
"""

from .arguments import TableInfo
from .client import Client, RowState, Table, connect, connect_many
from .errors import (Busy, Closed, Corrupt, Denied, DiskFull, Error, Internal, Interrupted, InUse,
                     InvalidArgument, Mismatch, NoMemory, NotFound, PeerGone, ProtocolError,
                     StorageError, Timeout, Unclean, Unsupported)
from .library import lib as _lib
from .requests import Future
from .walks import Block, Changes, Walk, Watch

__version__: str = _lib.embps_version().decode()

__all__ = [
    "Block", "Busy", "Changes", "Client", "Closed", "Corrupt", "Denied", "DiskFull", "Error", "Future",
    "InUse", "Internal", "Interrupted", "InvalidArgument", "Mismatch", "NoMemory", "NotFound",
    "PeerGone", "ProtocolError", "RowState", "StorageError", "Table", "TableInfo", "Timeout", "Unclean",
    "Unsupported", "Walk", "Watch", "connect", "connect_many",
]
