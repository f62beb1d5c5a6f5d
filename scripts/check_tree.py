#!/usr/bin/env python3
"""Checks what compilers and clang-tidy cannot: where things are and what may know what.

Rules: layout (top level, a README.md per folder), includes (direction between folders, third
parties in quarantine), names (unique file names, header guards), length, notes (a design note on
top of each .c), calls (banned functions), tests (each module has one), words (left-over marks).

Prints one line per finding, "path:line: rule: text", and exits with 1 when there are any.
"""

import argparse
import pathlib
import re
import subprocess
import sys

MAX_LINES = 700
MAX_COLUMNS = 100  # clang-format leaves comments alone

TOP_LEVEL = {
    "CMakeLists.txt", "README.md", "LICENSE", "common", "proto", "ps", "worker", "tests", "scripts",
}

# Folder -> folders whose headers it may include. Exactly these folders, not what lies below them.
# "embps.h", the public header, stands in worker/include.
SERVER_BASE = {"ps/store", "ps/growth", "ps/optim", "ps/init", "proto", "common"}
INCLUDES = {
    "common": {"common"},
    "proto": {"proto", "common"},
    "proto/local": {"proto/local", "proto", "common"},
    "proto/mpi": {"proto/mpi", "proto", "common"},
    "proto/grpc": {"proto/grpc", "proto", "common"},
    "ps/store": {"ps/store", "common"},
    "ps/growth": {"ps/growth", "common"},
    "ps/optim": {"ps/optim", "common"},
    "ps/init": {"ps/init", "common"},
    "ps/table": {"ps/table"} | SERVER_BASE,
    "ps/serve": {"ps/serve", "ps/table"} | SERVER_BASE,
    "ps/checkpoint": {"ps/checkpoint", "ps/serve", "ps/table"} | SERVER_BASE,
    "ps/log": {"ps/log", "ps/serve", "ps/table"} | SERVER_BASE,
    "ps": {"ps", "ps/checkpoint", "ps/log", "ps/serve", "ps/table"} | SERVER_BASE,
    "worker/include": set(),
    "worker": {"worker", "worker/include", "worker/cache", "proto", "proto/local", "proto/mpi",
               "proto/grpc", "common"},
    "worker/cache": {"worker/cache", "proto", "common"},
    "worker/vectors": {"worker/vectors", "common"},
    "worker/programs": {"worker/include", "common"},
    "worker/tool": {"worker/tool", "worker/programs", "worker/vectors", "worker/include", "common"},
    "worker/train": {"worker/train", "worker/programs", "worker/vectors", "worker",
                     "worker/include", "proto", "proto/mpi", "common"},
}

# (file, header) that the table above forbids, with the reason.
INCLUDE_EXCEPTIONS = {
    ("worker/local_shard.c", "ps/server.h"): "starts a shard inside the worker's process",
    ("worker/tool/plan.c", "ps/table_plan.h"): "plans with the server's own formulas",
    ("worker/tool/checkpoint_files.h", "proto/saved_folder.h"): "reads them without servers",
    ("worker/tool/checkpoint_files.c", "proto/message.h"): "a table's options are a message",
    ("worker/tool/checkpoint_diff.c", "proto/message.h"): "a table's options are a message",
    ("worker/tool/checkpoint_diff.c", "worker/table_options.h"): "a table's options as text",
    ("worker/tool/checkpoint_prune.c", "proto/saved_change.h"): "removes them without servers",
    ("worker/tool/checkpoint_rows.c", "ps/checkpoint/rows_diff.h"): "reads rows as a restore does",
    ("worker/tool/verify_data.c", "ps/data_check.h"): "reads what servers left, without them",
    ("ps/main.c", "proto/mpi/mpi_transport.h"): "the program chooses the transport",
    ("ps/main.c", "proto/grpc/grpc_server.h"): "the program chooses the transport",
    ("ps/alone.c", "proto/grpc/grpc_server.h"): "a program too",
    ("ps/listening.c", "proto/grpc/grpc_server.h"): "opens the door for both programs",
    ("ps/listening.c", "proto/grpc/listen_address.h"): "may others reach it?",
}

# Third party header -> the only files that may include it, as an expression.
QUARANTINE = [
    (r"mpi\.h", r"proto/mpi/.*|(.*/)?main\.c|tests/.*"),
    (r"grpc/.*", r"proto/grpc/.*|tests/.*"),
    (r"rocksdb/.*", r"ps/store/cold_rocks\.c|tests/bench/.*"),
    (r"protobuf-c/.*|proto/(embps|checkpoint)\.pb-c\.h", r"proto/[^/]*|tests/.*"),
    (r"Random123/.*", r"common/rng\.c"),
]

BANNED_CALLS = {"sprintf", "vsprintf", "strcpy", "strcat", "strncpy", "strncat", "strtok", "gets",
                "atoi", "atol", "atof", "rand", "srand", "alloca"}
# Only for common/alloc.c and tests: the rest goes through psc_alloc.
ALLOCATION_CALLS = {"malloc", "calloc", "realloc", "reallocarray", "free", "strdup", "strndup",
                    "aligned_alloc", "posix_memalign", "asprintf", "vasprintf"}

# (module or its start, test, reason) for modules without a test of their own name.
COVERED_BY = [
    ("common/fork_mark.c", "tests/unit/proto/test_buffer.c", "what it is for"),
    ("common/options_help.c", "tests/unit/common/test_options.c", "the other half of options"),
    ("proto/message_pack_blocks.c", "tests/unit/proto/test_message_blocks.c", "both directions"),
    ("proto/message_unpack_hello.c", "tests/unit/proto/test_message_unpack.c", "a part of it"),
    ("proto/message_unpack_blocks.c", "tests/unit/proto/test_message_blocks.c", "both directions"),
    ("proto/mpi/", "tests/cluster/test_transport.sh", "needs mpirun"),
    ("proto/grpc/door_frames.c", "tests/cluster/test_door_frames.sh", "a foreign client's streams"),
    ("proto/grpc/grpc_call.c", "tests/unit/proto/grpc/test_grpc_client.c", "what it consists of"),
    ("proto/grpc/grpc_signs.c", "tests/unit/proto/grpc/test_grpc_client.c", "signs of life"),
    ("proto/grpc/descriptors.c", "tests/unit/proto/grpc/test_door_streams.c", "what is found"),
    ("proto/grpc/grpc_reflection.c", "tests/unit/proto/grpc/test_door_streams.c", "all questions"),
    ("proto/grpc/door_", "tests/unit/proto/grpc/test_grpc_server.c", "what it consists of"),
    ("proto/grpc/grpc_health.c", "tests/unit/proto/grpc/test_grpc_server.c", "calls of probes"),
    ("proto/grpc/grpc_tls.c", "tests/cluster/test_door_tls.sh", "real clients, right and wrong"),
    ("proto/grpc/grpc_tokens.c", "tests/cluster/test_tokens.sh", "real clients, right and wrong"),
    ("proto/grpc/grpc_secrets.c", "tests/cluster/test_client_tls.sh", "a client's, right and wrong"),
    ("proto/grpc/grpc_probe.c", "tests/cluster/test_client_tls.sh", "what is said of a failure"),
    ("proto/grpc/grpc_handshake.c", "tests/cluster/test_client_tls.sh", "needs a server with TLS"),
    ("proto/grpc/grpc_certificates.c", "tests/cluster/test_client_tls.sh", "needs certificates"),
    ("proto/grpc/grpc_log.c", "tests/cluster/test_door_tls.sh", "needs handshakes that fail"),
    ("proto/grpc/listen_address.c", "tests/unit/ps/test_listening.c", "where it may listen"),
    ("proto/joined_transport.c", "tests/cluster/test_door.sh", "a job with guests"),
    ("ps/alone.c", "tests/cluster/test_door.sh", "the program"),
    ("ps/data_identity.c", "tests/unit/ps/test_data_check.c", "what is checked is what it wrote"),
    ("ps/server_log.c", "tests/fault/test_push_survives.sh", "servers that are killed"),
    ("ps/server_open.c", "tests/unit/ps/test_server.c", "the first half of a server"),
    ("ps/server_rounds.c", "tests/cluster/test_checkpoint.sh", "jobs, and signals to them"),
    ("ps/checkpoint/restore_", "tests/unit/worker/test_checkpoint_api.c", "any number of servers"),
    ("ps/optim/", "tests/unit/ps/optim/test_optim.c", "one suite over the table of optimizers"),
    ("ps/init/", "tests/unit/ps/init/test_init.c", "one suite over the table of initialisers"),
    ("ps/serve/checkpoint.c", "tests/unit/worker/test_checkpoint_api.c", "what a client may ask"),
    ("ps/serve/", "tests/unit/ps/table/test_shard.c", "one suite over the kinds of requests"),
    ("ps/table/saver", "tests/unit/worker/test_checkpoint_api.c", "a checkpoint, and what it has"),
    ("ps/checkpoint/saved_rows.c", "tests/unit/ps/checkpoint/test_rows_diff.c", "what it reads"),
    ("ps/checkpoint/place_file.c", "tests/unit/ps/checkpoint/test_restore.c", "its files"),
    ("ps/checkpoint/writer.c", "tests/unit/ps/checkpoint/test_restore.c", "what it wrote"),
    ("proto/saved_change.c", "tests/unit/worker/tool/test_checkpoint_files.c", "prune"),
    ("proto/saved_folder.c", "tests/unit/ps/checkpoint/test_restore.c", "which is damaged"),
    ("proto/message_checkpoint.c", "tests/unit/proto/test_message_pack.c", "a part of it"),
    ("ps/table/shard_look.c", "tests/unit/ps/table/test_shard.c", "each answer is one of its"),
    ("ps/table/shard_reply.c", "tests/unit/ps/table/test_shard.c", "each answer is one of its"),
    ("ps/table/sweeper.c", "tests/unit/ps/table/test_growth.c", "what it frees, and when"),
    ("ps/table/session.c", "tests/unit/ps/table/test_shard.c", "what the shard is made of"),
    ("ps/table/row", "tests/unit/ps/table/test_rows.c", "pushes against plain loops"),
    ("ps/store/cold_", "tests/unit/ps/store/test_cold.c", "one suite over every cold tier"),
    ("ps/store/store_plan.c", "tests/unit/ps/test_table_plan.c", "plans against open stores"),
    ("ps/store/room.c", "tests/unit/ps/store/test_store.c", "part of the store"),
    ("worker/core_parts.c", "tests/unit/worker/test_core.c", "what numbers calls get"),
    ("worker/issue_again.c", "tests/unit/worker/test_core_relay.c", "messages of a relaid core"),
    ("worker/train/kernel.c", "tests/unit/worker/train/test_window.c", "tables of window.c"),
    ("worker/train/window_reference.c", "tests/unit/worker/train/test_window.c",
     "what window.c is compared with"),
    ("worker/tool/", "tests/unit/worker/tool/test_eval.c", "sub-commands over shared parts"),
    ("worker/train/skipgram.c", "tests/unit/worker/train/test_trainer.c", "each model is trained"),
    ("worker/train/cbow.c", "tests/unit/worker/train/test_trainer.c", "each model is trained"),
    ("worker/train/lookahead.c", "tests/unit/worker/train/test_trainer.c", "at several depths"),
    ("worker/train/export.c", "tests/unit/worker/train/test_trainer.c", "its files are compared"),
    ("worker/train/run.c", "tests/unit/worker/train/test_trainer.c", "what both runs share"),
    ("worker/train/run_local.c", "tests/unit/worker/train/test_trainer.c", "threads"),
    ("worker/train/run_mpi.c", "tests/cluster/test_train.sh", "ranks"),
    ("worker/train/train_setup.c", "tests/unit/worker/train/test_trainer.c", "what a run begins with"),
    ("worker/train/train_checkpoint.c", "tests/cluster/test_resume.sh", "needs a job"),
    ("worker/train/vocab_file.c", "tests/unit/worker/train/test_vocab.c", "files of vocab.c"),
    ("worker/train/word_counter.c", "tests/unit/worker/train/test_vocab.c", "counts of vocab.c"),
    ("worker/vectors/", "tests/unit/worker/vectors/test_vectors_file.c", "writer against reader"),
    ("worker/cache/deltas.c", "tests/unit/worker/cache/test_cache.c", "part of the cache"),
    ("worker/cache/entries.c", "tests/unit/worker/cache/test_cache.c", "part of the cache"),
    ("worker/cache/frequency.c", "tests/unit/worker/cache/test_cache.c", "part of the cache"),
    ("worker/block.c", "tests/unit/worker/test_export_api.c", "what exports bring"),
    ("worker/import_api.c", "tests/unit/worker/test_export_api.c", "the public call"),
    ("worker/cache_api.c", "tests/unit/worker/test_cached_rows.c", "the calls"),
    ("worker/issue.c", "tests/unit/worker/test_core.c", "what the core is driven with"),
    ("worker/client.c", "tests/unit/worker/test_client_local.c", "life of a client"),
    ("worker/direct_api.c", "tests/unit/worker/test_direct.c", "the public call"),
    ("worker/connect.c", "tests/unit/worker/test_client_local.c", "local; MPI is tests/cluster"),
    ("worker/local_shard.c", "tests/unit/worker/test_client_local.c", "its clients"),
    ("worker/rows_api.c", "tests/unit/worker/test_client_local.c", "the public calls"),
    ("worker/sync_api.c", "tests/unit/worker/test_client_local.c", "the public calls"),
    ("worker/find_api.c", "tests/unit/worker/test_table_api.c", "tables that exist"),
    ("worker/sized_options.c", "tests/unit/worker/test_table_api.c", "options of both kinds"),
    ("worker/stats_api.c", "tests/unit/worker/test_client_local.c", "the public calls"),
]

MODULE_FOLDERS = ("common/", "proto/", "ps/", "worker/")
CODE_SUFFIXES = {".c", ".h"}
CALL = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                               re.DOTALL)


def tracked_files(root):
    """Paths below root that belong to the repository, or will with the next `git add`."""
    listing = subprocess.run(
        # A checkout that belongs to another user, as in containers, is none of our business.
        ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, stdout=subprocess.PIPE)
    names = sorted(set(listing.stdout.decode().split("\0")) - {""})
    return [name for name in names if (pathlib.Path(root) / name).is_file()]


def without_comments(text):
    """Text with comments and literals blanked, line numbers kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return COMMENT_OR_STRING.sub(blank, text)


def folder_of(path):
    return path.rpartition("/")[0]


class Tree:
    """The files of the repository, and what was found wrong with them."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = tracked_files(root)
        self.known = set(self.files)
        self.code = [f for f in self.files if pathlib.PurePath(f).suffix in CODE_SUFFIXES]
        self.findings = []

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="surrogateescape")

    def report(self, path, line, rule, text):
        self.findings.append((path, line, rule, text))

    def check_layout(self):
        tops = {f.split("/")[0] for f in self.files}
        for top in sorted(tops):
            if top not in TOP_LEVEL and not top.startswith("."):
                self.report(top, 1, "layout", "does not belong on the top level")
        folders = {folder_of(f) for f in self.code if f.startswith(MODULE_FOLDERS)}
        folders = {f for f in folders if f != "worker/include"} | {"scripts", "tests"}
        for folder in sorted(folders):
            if f"{folder}/README.md" not in self.known:
                self.report(folder, 1, "layout", "has no README.md that says what belongs in it")

    def check_names(self):
        seen = {}
        for path in self.files:
            name = path.rsplit("/", 1)[-1]
            if name in {"main.c", "README.md", "CMakeLists.txt", "__init__.py"} or "/corpus/" in path:
                continue
            if name in seen:
                self.report(path, 1, "names", f"same file name as {seen[name]}")
            seen.setdefault(name, path)
        for path in self.code:
            guard = re.sub(r"\W", "_", path).upper()
            if path == "worker/include/embps.h":
                guard = "EMBPS_H"
            if path.endswith(".h") and f"#ifndef {guard}\n#define {guard}\n" not in self.text(path):
                self.report(path, 1, "names", f"include guard is not {guard}")

    def check_length(self):
        for path in self.files:
            is_script = path.endswith((".py", ".sh")) or folder_of(path) == "scripts"
            if path not in self.code and not is_script:
                continue
            lines = self.text(path).count("\n")
            if lines > MAX_LINES:
                self.report(path, lines, "length", f"{lines} lines, more than {MAX_LINES}")

    def check_notes(self):
        for path in self.code:
            if not self.text(path).startswith("/*"):
                self.report(path, 1, "notes", "does not begin with a comment on its purpose")

    def check_includes(self):
        for path in self.code:
            for number, line in enumerate(self.text(path).splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    self.check_include(path, number, match.group(1) == '"', match.group(2))

    def check_include(self, path, number, quoted, header):
        for pattern, allowed in QUARANTINE:
            if re.fullmatch(pattern, header):
                if not re.fullmatch(allowed, path):
                    self.report(path, number, "includes", f"<{header}> is for {allowed} alone")
                return
        if not quoted:
            return
        if header == "embps.h":
            header = "worker/include/embps.h"
        if header not in self.known:
            self.report(path, number, "includes", f'"{header}" is no file seen from the root')
            return
        if path.startswith("tests/") or (path, header) in INCLUDE_EXCEPTIONS:
            return
        if folder_of(header) not in INCLUDES.get(folder_of(path), set()):
            self.report(path, number, "includes",
                        f"{folder_of(path)}/ must not know {folder_of(header)}/ ({header})")

    def check_calls(self):
        for path in self.code:
            banned = set(BANNED_CALLS)
            if path != "common/alloc.c" and not path.startswith("tests/"):
                banned |= ALLOCATION_CALLS
            for number, line in enumerate(without_comments(self.text(path)).splitlines(), 1):
                for name in CALL.findall(line):
                    if name in banned:
                        self.report(path, number, "calls", f"{name}() is banned")
                if re.match(r"\s*#\s*define\s+_GNU_SOURCE\b", line):
                    self.report(path, number, "calls", "_GNU_SOURCE comes from the command line")

    def check_tests(self):
        used = set()
        for path in self.code:
            stem = pathlib.PurePath(path).stem
            if not path.startswith(MODULE_FOLDERS) or not path.endswith(".c") or stem == "main":
                continue
            if f"tests/unit/{folder_of(path)}/test_{stem}.c" in self.known:
                continue
            covers = [entry for entry in COVERED_BY if path.startswith(entry[0])]
            used.update(covers)
            if not any(test in self.known for _, test, _ in covers):
                self.report(path, 1, "tests",
                            f"no tests/unit/{folder_of(path)}/test_{stem}.c, and no entry for it")
        for entry in COVERED_BY:
            if entry not in used:
                self.report("scripts/check_tree.py", 1, "tests", f"entry {entry[0]} is not needed")

    def check_words(self):
        for path in self.files:
            if path == "scripts/check_tree.py" or "/corpus/" in path:
                continue
            for number, line in enumerate(self.text(path).splitlines(), 1):
                if LEFT_OVER.search(line):
                    self.report(path, number, "words", "left-over mark; file an issue instead")
                if path in self.code and len(line) > MAX_COLUMNS:
                    self.report(path, number, "length", f"more than {MAX_COLUMNS} columns")
                if line != line.rstrip() and not path.endswith((".md", ".txt", ".tsv")):
                    self.report(path, number, "words", "blanks at the end of the line")

    def check(self):
        self.check_layout()
        self.check_names()
        self.check_length()
        self.check_notes()
        self.check_includes()
        self.check_calls()
        self.check_tests()
        self.check_words()
        return sorted(self.findings)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent,
                        help="top folder of the repository (default: the one of this script)")
    arguments = parser.parse_args()
    findings = Tree(arguments.root).check()
    for path, line, rule, text in findings:
        print(f"{path}:{line}: {rule}: {text}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
