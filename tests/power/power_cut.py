#!/usr/bin/env python3
"""What a power cut leaves of a folder whose changes power_shim wrote down.

    power_cut.py begin ROOT STATE        the folder as it is counts as synced; STATE is made, or begun again
    power_cut.py arm STATE CHANGES       the power is cut at the CHANGES-th change from now on
    power_cut.py off STATE               it is cut now: nobody changes anything any more
    power_cut.py cut ROOT STATE SEED     the processes are gone: ROOT becomes what the cut left, by chance; begin
    power_cut.py check ROOT STATE        the processes have ended: has the shim seen all changes?
    power_cut.py counts STATE            prints how many changes there were, and how many calls were made to fail

What stays. Of a file: what it had when it was last synced, and of what came later nothing, all, a first part that
ends at any byte, or any of its sectors of 512 bytes, with zeros or noise in the place of others. Of a folder: the names
that it had when it was synced, and of what became of each name later any first part; names that were renamed or
linked into one another go together. Folders and files are independent of each other. So what was removed may be there,
and what was made may not be, in any combination that POSIX leaves open.
"""

import argparse
import fcntl
import os
import pickle
import random
import shutil
import struct
import sys
import uuid

MAGIC = 0x31726577506D6521
RECORD = struct.Struct("<QQQQQQII")
SHARED = struct.Struct("<QQQQQ")
CREATE, SIZE, WRITE, SYNC, MKDIR, RENAME, LINK, UNLINK, NOT_SEEN = range(1, 10)
SECTOR = 512


def fail(text):
    sys.exit(f"power_cut: {text}")


class File:
    def __init__(self, content=b""):
        self.now = bytearray(content)
        self.synced = bytes(content)
        self.later = []  # (at, bytes), or (size, None)

    def change(self, at, data):
        apply(self.now, at, data)
        self.later.append((at, data))

    def sync(self):
        self.synced = bytes(self.now)
        self.later = []

    def left(self, chance):
        """What a power cut leaves of it."""
        kind = chance.choice(["nothing", "all", "part", "sectors"])
        left = bytearray(self.synced)
        if kind == "nothing" or not self.later:
            return left
        if kind == "all":
            return self.now
        if kind == "part":
            n = chance.randrange(len(self.later))
            for at, data in self.later[:n]:
                apply(left, at, data)
            at, data = self.later[n]
            if data is not None:
                apply(left, at, data[:chance.randrange(len(data) + 1)])
            return left
        apply(left, len(self.now), None)
        for begin in range(0, len(self.now), SECTOR):
            sector = self.now[begin:begin + SECTOR]
            if sector == left[begin:begin + SECTOR]:
                continue
            if chance.random() < 0.6:
                left[begin:begin + SECTOR] = sector
            elif begin >= len(self.synced) and chance.random() < 0.3:
                left[begin:begin + SECTOR] = chance.randbytes(len(sector))
        return left


def apply(content, at, data):
    """A write; without data a new size."""
    size = at if data is None else at + len(data)
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if data is None:
        del content[size:]
    else:
        content[at:size] = data


class Folder:
    def __init__(self):
        self.now = {}
        self.synced = {}
        self.later = []  # [(name, what or None), ...]: at once

    def change(self, *names):
        put_names(self.now, names)
        self.later.append(names)

    def sync(self):
        self.synced = dict(self.now)
        self.later = []

    def left(self, chance):
        groups = []  # (names, which of self.later), no name in two of them
        for i, change in enumerate(self.later):
            names, changes = {name for name, _ in change}, [i]
            for group in [group for group in groups if group[0] & names]:
                groups.remove(group)
                names |= group[0]
                changes += group[1]
            groups.append((names, changes))
        left = dict(self.synced)
        for _, changes in groups:
            for i in sorted(changes)[:chance.randrange(len(changes) + 1)]:
                put_names(left, self.later[i])
        return left


def put_names(names, change):
    for name, what in change:
        if what is None:
            names.pop(name, None)
        else:
            names[name] = what


class Disk:
    """The folder, by inode numbers."""

    def __init__(self, root):
        self.by_number = {}
        self.root = self.scan(root)

    def scan(self, path):
        number = os.lstat(path).st_ino
        if number not in self.by_number:
            if os.path.isdir(path):
                folder = self.by_number[number] = Folder()
                for name in os.listdir(path):
                    folder.now[name] = self.scan(os.path.join(path, name))
                folder.sync()
            else:
                with open(path, "rb") as file:
                    self.by_number[number] = File(file.read())
        return self.by_number[number]

    def place(self, path):
        """The folder of a path, and its name there."""
        *folders, name = path.split("/")
        folder = self.root
        for part in folders:
            folder = folder.now[part]
        return folder, name

    def read(self, change, number, at, path, other, data):
        if change == NOT_SEEN:
            fail(f"a change that the shim cannot follow: {path}")
        if change in (CREATE, MKDIR):
            folder, name = self.place(path)
            self.by_number[number] = File() if change == CREATE else Folder()
            folder.change((name, self.by_number[number]))
        elif change == LINK:
            folder, name = self.place(other)
            folder.change((name, self.by_number[number]))
        elif change == UNLINK:
            folder, name = self.place(path)
            folder.change((name, None))
        elif change == RENAME:
            folder, name = self.place(path)
            to, new = self.place(other)
            if to is not folder:
                fail(f"a move from folder to folder: {path}, {other}")
            folder.change((name, None), (new, folder.now[name]))
        elif change == SYNC:
            self.by_number[number].sync()
        else:
            self.by_number[number].change(at, data if change == WRITE else None)


def records_of(path):
    with open(path, "rb") as file:
        bytes_ = file.read()
    at = 0
    while at + RECORD.size <= len(bytes_):
        magic, order, change, number, where, n, n_path, n_other = RECORD.unpack_from(bytes_, at)
        if magic != MAGIC:
            fail(f"{path} is no journal at {at}")
        begin = at + RECORD.size
        middle = begin + n_path
        end = middle + n_other
        if end + n > len(bytes_):
            break  # killed in the middle
        yield (order, change, number, where, bytes_[begin:middle].decode(), bytes_[middle:end].decode(),
               bytes_[end:end + n])
        at = end + n


def journals(state):
    return [os.path.join(state, name) for name in os.listdir(state) if name.startswith("journal-")]


def load(state):
    with open(os.path.join(state, "base"), "rb") as file:
        disk = pickle.load(file)
    records = [record for path in journals(state) for record in records_of(path)]
    for _, *record in sorted(records, key=lambda record: record[0]):
        disk.read(*record)
    return disk


def is_log(name):
    """RocksDB's own log, whose bytes the shim does not see."""
    return name.startswith("LOG")


def write_folder(names, path, chance, made):
    os.mkdir(path)
    for name, what in sorted(names.items()):
        at = os.path.join(path, name)
        if isinstance(what, Folder):
            write_folder(what.left(chance), at, chance, made)
        elif id(what) in made:
            os.link(made[id(what)], at)
        else:
            made[id(what)] = at
            with open(at, "wb") as file:
                file.write(what.left(chance))


def begin(root, state):
    os.makedirs(state, exist_ok=True)
    for path in journals(state):
        os.remove(path)
    with open(os.path.join(state, "base"), "wb") as file:
        pickle.dump(Disk(root), file)
    with open(os.path.join(state, "shared"), "wb") as file:
        file.write(SHARED.pack(0, 0, 0, 0, 0))
    with open(os.path.join(state, "boot_id"), "w", encoding="ascii") as file:
        file.write(f"{uuid.uuid4()}\n")


def shared(state, change):
    """Changes what the processes share, between two of their changes."""
    with open(os.path.join(state, "lock"), "ab") as lock, \
            open(os.path.join(state, "shared"), "r+b", buffering=0) as file:
        fcntl.flock(lock, fcntl.LOCK_EX)
        values = list(SHARED.unpack(file.read(SHARED.size)))
        changed = change(list(values))
        for i, (old, new) in enumerate(zip(values, changed)):
            if old != new:
                os.pwrite(file.fileno(), struct.pack("<Q", new), 8 * i)
    return values


def cut(root, state, seed):
    disk = load(state)
    chance = random.Random(seed)
    shutil.rmtree(root)
    write_folder(disk.root.left(chance), root, chance, {})
    begin(root, state)


def compare(folder, path, faults):
    names = set(os.listdir(path))
    for name in sorted(names ^ set(folder.now)):
        faults.append(f"{path}/{name} is {'not seen' if name in names else 'not there'}")
    for name in sorted(names & set(folder.now)):
        what, at = folder.now[name], os.path.join(path, name)
        if isinstance(what, Folder):
            compare(what, at, faults)
        elif not is_log(name):
            with open(at, "rb") as file:
                if file.read() != what.now:
                    faults.append(f"{at} has other bytes")


def check(root, state):
    faults = []
    compare(load(state).root, root, faults)
    if faults:
        fail("; ".join(faults))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["begin", "arm", "off", "cut", "check", "counts"])
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    given = options.arguments
    if options.what == "begin":
        begin(*given)
    elif options.what == "arm":
        shared(given[0], lambda v: [v[0], v[0] + int(given[1])] + v[2:])
    elif options.what == "off":
        shared(given[0], lambda v: v[:2] + [1] + v[3:])
    elif options.what == "cut":
        cut(*given)
    elif options.what == "check":
        check(*given)
    else:
        values = shared(given[0], lambda v: v)
        print(values[0], values[4])


if __name__ == "__main__":
    main()
