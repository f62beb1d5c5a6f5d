#!/usr/bin/env python3
"""scripts/check_tree.py finds one broken rule each in a small tree, and nothing in a clean one."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
SPEC = importlib.util.spec_from_file_location("check_tree", ROOT / "scripts" / "check_tree.py")
check_tree = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_tree)

HEADER = "/* Purpose. */\n#ifndef {guard}\n#define {guard}\n#endif\n"
CLEAN = {
    "README.md": "embps\n",
    "common/README.md": "common\n",
    "common/tool.h": HEADER.format(guard="COMMON_TOOL_H"),
    "common/tool.c": '/* Note. */\n#include "common/tool.h"\n\nint psc_tool;\n',
    "ps/table/README.md": "table\n",
    "ps/table/row.h": HEADER.format(guard="PS_TABLE_ROW_H"),
    "ps/table/row.c": '/* Note. */\n#include "common/tool.h"\n#include "ps/table/row.h"\n',
    "scripts/README.md": "scripts\n",
    "tests/README.md": "tests\n",
    "tests/unit/common/test_tool.c": "/* Test. */\n#include <mpi.h>\nint f(void) { free(0); }\n",
    "tests/unit/ps/table/test_row.c": "/* Test. */\n",
    "worker/README.md": "worker\n",
}


class CheckTree(unittest.TestCase):
    def findings(self, changes):
        """What is found in the clean tree with changes, as "path:line: rule"."""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "init", "-q", folder], check=True)
            for path, text in {**CLEAN, **changes}.items():
                if text is None:
                    continue
                target = pathlib.Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            found = check_tree.Tree(folder).check()
            return [f"{path}:{line}: {rule}" for path, line, rule, _ in found
                    if path != "scripts/check_tree.py"]

    def assert_found(self, changes, *expected):
        self.assertEqual(self.findings(changes), list(expected))

    def test_a_clean_tree_has_no_findings(self):
        self.assert_found({})

    def test_an_upward_include_is_found(self):
        self.assert_found({"common/tool.c": '/* N. */\n#include "ps/table/row.h"\n'},
                          "common/tool.c:2: includes")

    def test_server_and_worker_do_not_know_each_other(self):
        self.assert_found({"worker/extra.c": '/* N. */\n#include "ps/table/row.h"\n',
                           "tests/unit/worker/test_extra.c": "/* T. */\n"},
                          "worker/extra.c:2: includes")

    def test_one_file_may_start_a_shard(self):
        self.assert_found({"worker/local_shard.c": '/* N. */\n#include "ps/server.h"\n',
                           "ps/README.md": "ps\n",
                           "ps/server.h": HEADER.format(guard="PS_SERVER_H"),
                           "tests/unit/worker/test_local_shard.c": "/* T. */\n"})

    def test_includes_are_seen_from_the_root(self):
        self.assert_found({"common/tool.c": '/* N. */\n#include "tool.h"\n'},
                          "common/tool.c:2: includes")

    def test_third_parties_stay_in_quarantine(self):
        self.assert_found({"common/tool.c": "/* N. */\n#include <mpi.h>\n#include <rocksdb/c.h>\n"},
                          "common/tool.c:2: includes", "common/tool.c:3: includes")

    def test_banned_calls_are_found_outside_comments_and_strings(self):
        self.assert_found({"common/tool.c": '/* strcpy(a, b) */\nconst char *s = "atoi(x)";\n'
                                            "void f(void) { sprintf(a, b); }\n"
                                            "void g(void) { p->free(q); psc_free(q); free(q); }\n"},
                          "common/tool.c:3: calls", "common/tool.c:4: calls")

    def test_a_module_without_a_test_is_found(self):
        self.assert_found({"tests/unit/common/test_tool.c": None}, "common/tool.c:1: tests")

    def test_the_same_file_name_twice_is_found(self):
        self.assert_found({"ps/table/tool.h": HEADER.format(guard="PS_TABLE_TOOL_H")},
                          "ps/table/tool.h:1: names")

    def test_a_wrong_guard_is_found(self):
        self.assert_found({"common/tool.h": HEADER.format(guard="TOOL_H")},
                          "common/tool.h:1: names")

    def test_a_long_file_is_found(self):
        self.assert_found({"common/tool.c": "/* N. */\n" + "int x;\n" * 700},
                          "common/tool.c:701: length")

    def test_a_source_without_a_note_is_found(self):
        self.assert_found({"common/tool.c": "int psc_tool;\n"}, "common/tool.c:1: notes")

    def test_a_stranger_on_the_top_level_is_found(self):
        self.assert_found({"src/thing.txt": "x\n"}, "src:1: layout")

    def test_a_folder_without_readme_is_found(self):
        self.assert_found({"common/README.md": None}, "common:1: layout")

    def test_left_over_marks_are_found(self):
        self.assert_found({"common/tool.c": "/* TO" + "DO: later */\n"}, "common/tool.c:1: words")


if __name__ == "__main__":
    unittest.main()
