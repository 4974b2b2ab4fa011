"""project_rules_test.py: the tree keeps the rules, and every rule catches a violation of it."""

import os
import sys
import tempfile
import unittest

import project_rules

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


class TheTree(unittest.TestCase):
    maxDiff = None  # all that is wrong is named

    def test_keeps_the_rules(self):
        self.assertEqual(project_rules.check(ROOT), [])

    def test_is_really_read(self):
        files = project_rules.files_of(ROOT)
        for expected in ("base/status.h", "bench/commbench/main.cc", "tools/check", "CMakeLists.txt",
                         "libclient/include/hdt/hdt.h"):
            self.assertIn(expected, files)


class Rules(unittest.TestCase):
    def violations(self, path, text, others=()):
        with tempfile.TemporaryDirectory() as root:
            for name, content in [(path, text), *others]:
                os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(content)
            return project_rules.check(root)

    def assert_allowed(self, path, text):
        self.assertEqual(self.violations(path, text), [])

    def assert_refused(self, path, text, reason):
        found = self.violations(path, text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(path, found[0])
        self.assertIn(reason, found[0])

    def test_layers(self):
        self.assert_allowed("daemon/a.cc", '#include "base/status.h"\n#include "transports/transport.h"\n')
        self.assert_refused("base/a.cc", '#include "transports/transport.h"\n', "base may include only base")
        self.assert_refused("transports/tcp/a.cc", '#include "collectives/types.h"\n',
                            "transports may include only")
        self.assert_refused("collectives/a.cc", '#include "daemon/engine/engine.h"\n',
                            "collectives may include only")
        self.assert_allowed("ipc/a.cc", '#include "collectives/types.h"\n')
        self.assert_refused("ipc/a.cc", '#include "daemon/engine/engine.h"\n', "ipc may include only")
        self.assert_refused("daemon/a.cc", '#include "libclient/comm.h"\n', "daemon may include only")
        self.assert_refused("bench/a.cc", '  #  include <collectives/types.h>\n', "bench may include only")
        self.assert_refused("tools/hdtctl/a.cc", '#include "daemon/engine/engine.h"\n',
                            "tools may include only")
        self.assert_refused("bindings/torch/a.cc", '#include "base/status.h"\n',
                            "bindings may include only")

    def test_width(self):
        self.assert_allowed("base/a.cc", "// " + 107 * "a" + "\n")
        self.assert_refused("base/a.cc", "\n// " + 108 * "a" + "\n", "a.cc:2: 111 columns")
        help_text = 'const char* help = R"(' + 200 * "a" + "\n" + 200 * "b" + ')";'
        self.assert_allowed("base/a.cc", help_text + "\n")
        self.assert_refused("base/a.cc", help_text + "\n" + 111 * "c" + "\n", "a.cc:3: 111 columns")

    def test_width_of_other_files(self):
        wide = "# " + 109 * "a"
        for path in ("tests/a.py", "tests/a.sh", "base/CMakeLists.txt", "cmake/A.cmake", "CMakeLists.txt",
                     "CMakePresets.json", "dist/a.service"):
            first = f"# {os.path.basename(path)}: what it is.\n"
            self.assert_allowed(path, first + wide[:110] + "\n")
            self.assert_refused(path, first + wide + "\n", os.path.basename(path) + ":2: 111 columns")
        script = "#!/bin/sh\n# run: what it is.\n"
        self.assert_refused("tools/run", script + wide + "\n", "run:3: 111 columns")
        self.assert_allowed("tests/a.py", "# a.py: see https://example.org/" + 100 * "a" + "\n")
        self.assert_allowed("tests/fuzz/corpus/x/seed", 200 * "a" + "\n")

    def test_width_of_pages(self):
        wide = 55 * "a " + "b"
        self.assert_refused("docs/a.md", f"# A\n\n{wide}\n", "a.md:3: 111 columns")
        self.assert_refused("README.md", f"```sh\n{wide}\n```\n{wide}\n", "README.md:4: 111 columns")
        self.assert_refused("docs/design/a.md", f"- a\n  {wide}\n", "a.md:2: 113 columns")
        for text in (f"```sh\n{wide}\n```\n", f"    {wide}\n", f"| {wide} |\n"):
            self.assert_allowed("docs/a.md", text)
        self.assert_allowed("docs/reference/a.md", f"{wide}\n")

    def test_configuration(self):
        keys = '{"a", "b", HDT_FIELD(List<std::string>, a.b), 1}, {"c", "d", HDT_FIELD(int64_t, c.d), 2},\n'
        describes = ("base/config.cc", "config.c.d;\n")
        reads = ("daemon/x.cc", "config.a.b;\n")
        found = self.violations("base/config_keys.cc", keys, [describes, reads])
        self.assertEqual(found, ["base/config_keys.cc: nothing reads c.d"])
        self.assertEqual(self.violations("base/config_keys.cc", keys, [reads, ("tools/y/z.cc", "x.c.d;\n")]),
                         [])

    def test_rooms(self):
        self.assert_allowed("transports/tcp/a.cc", '#include "transports/net/socket.h"\n')
        self.assert_allowed("transports/tcp/a.cc", '#include "transports/tcp/frame.h"\n')
        self.assert_allowed("transports/net/a.h", '// a.h: a.\n#include "transports/transport.h"\n')
        self.assert_refused("transports/net/a.cc", '#include "transports/tcp/frame.h"\n',
                            "transports/net may include only")
        self.assert_refused("transports/tcp/a.cc", '#include "transports/rdma/frame.h"\n',
                            "transports/tcp may include only")
        self.assert_refused("transports/a.cc", '#include "transports/net/socket.h"\n',
                            "transports/ may include only")
        self.assert_refused("libclient/common/a.cc", '#include "libclient/group/communicator.h"\n',
                            "libclient/common may include only")
        self.assert_refused("libclient/a.cc", "\n", "is in no room of libclient")
        self.assert_refused("training/plan/describe/a.cc",
                            '#include "training/plan/predict/predictor.h"\n',
                            "training/plan/describe may include only")
        self.assert_refused("training/engine/a.cc", '#include "training/plan/describe/plan.h"\n',
                            "training/engine may include only")
        self.assert_refused("daemon/group/a.cc", '#include "daemon/engine/engine.h"\n',
                            "daemon/group may include only")
        self.assert_refused("transports/attic/a.cc", "\n", "is in no room of transports")

    def test_exceptions(self):
        self.assert_allowed("libclient/api/a.cc", '#include "daemon/embedded.h"\n')
        self.assert_refused("libclient/api/a.cc", '#include "daemon/engine/engine.h"\n',
                            "libclient may include only")
        self.assert_allowed("tools/hdtcommd/main.cc", '#include "daemon/daemon.h"\n')
        self.assert_refused("tools/hdtcommd/main.cc", '#include "daemon/engine/engine.h"\n',
                            "tools may include only")
        self.assert_allowed("tools/hdt-train/main.cc", '#include "training/engine/engine.h"\n')
        self.assert_allowed("tools/hdt-plan/main.cc", '#include "training/plan/describe/plan.h"\n')
        self.assert_refused("tools/hdt-plan/main.cc", '#include "training/engine/layout.h"\n',
                            "tools may include only")
        self.assert_refused("tools/hdtctl/main.cc", '#include "training/engine/engine.h"\n',
                            "tools may include only")
        self.assert_refused("tools/hdt-data/main.cc", '#include "tools/hdt-train/flags.h"\n',
                            "its own folder")

    def test_public_headers(self):
        self.assert_allowed("bench/a.cc", '#include "hdt/hdt.h"\n#include <hdt/hdt.hpp>\n')
        self.assert_refused("bench/a.cc", '#include "hdt/internal.h"\n', "the public headers are")

    def test_c_functions_have_a_form_in_cpp(self):
        c = ("/* hdt.h: calls. */\nHDT_API hdtResult_t hdtSend(int a,\n  int b);\n"
             "HDT_API const char* hdtText(void);\n")
        paths = ("libclient/include/hdt/hdt.hpp", "libclient/include/hdt/buffer.hpp")
        both = [(paths[0], "// hdt.hpp: a.\nreturn hdtSend(1, 2);\n"),
                (paths[1], "// buffer.hpp: b.\nhdtText();\n")]
        self.assertEqual(self.violations("libclient/include/hdt/hdt.h", c, both), [])
        one = [both[0], (paths[1], "// buffer.hpp: hdtText() is named here only.\n")]
        found = self.violations("libclient/include/hdt/hdt.h", c, one)
        self.assertEqual(len(found), 1, found)
        self.assertIn("hdtText is in none of", found[0])

    def test_every_function_of_the_c_interface_is_seen(self):
        with open(os.path.join(ROOT, project_rules.C_INTERFACE), encoding="utf-8") as file:
            text = file.read()
        found = project_rules.C_FUNCTION.findall(text)
        self.assertEqual(len(found), len(set(found)))
        self.assertEqual(len(found), text.count("\nHDT_API "))

    def test_torch(self):
        self.assert_allowed("training/torch/model.cc", "#include <torch/torch.h>\n")
        self.assert_allowed("bindings/torch/src/a.cc", "#include <ATen/ATen.h>\n")
        self.assert_refused("training/engine/a.cc", "#include <torch/torch.h>\n", "torch is only for")
        self.assert_refused("libclient/api/a.cc", "#include <c10/util/Half.h>\n", "torch is only for")

    def test_length(self):
        self.assert_allowed("base/a.cc", "\n" * 499)
        self.assert_refused("base/a.cc", "\n" * 500, "500 lines")

    def test_first_comment(self):
        self.assert_allowed("base/a.h", "// a.h: what it is.\n#pragma once\n")
        self.assert_refused("base/a.h", "#pragma once\n", "does not start with a comment")
        self.assert_refused("base/a.h", "// b.h: what it is.\n#pragma once\n", "says it is b.h")
        self.assert_refused("tools/run", "#!/bin/sh\nset -e\n", "does not start with a comment")

    def test_words(self):
        self.assert_refused("base/a.cc", "// TO" + "DO: later\n", "TO" + "DO")


if __name__ == "__main__":
    sys.exit(unittest.main())
