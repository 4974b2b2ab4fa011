"""compare_test.py BUILD: bench/compare from end to end, on few and quick rows. Figures are not judged
here."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv[1])
COMPARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bench", "compare")
TIMEOUT_S = 300


def compare(*arguments):
    return subprocess.run([sys.executable, "-B", COMPARE, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


class Compare(unittest.TestCase):
    def test_rows_of_every_kind(self):
        rows = ["node-bound", "net-bound", "idle-cpu", "group-memory"]
        with tempfile.TemporaryDirectory(prefix="hdt-compare-test-") as folder:
            path = os.path.join(folder, "figures.json")
            done = compare("--build", BUILD, "--quick", "--rows", ",".join(rows), "--daemon", "separate",
                           "--json", path)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        self.assertEqual([row["name"] for row in document["rows"]], rows)
        for row in document["rows"]:
            self.assertIn(row["verdict"], ("met", "missed"), row)
            self.assertIn(f"| {row['name']} | ", done.stdout)
        self.assertEqual(len(document["rows"][1]["points"]), 3)
        self.assertGreater(document["rows"][0]["figure"], 0)
        self.assertEqual(done.returncode, 0 if all(row["verdict"] == "met" for row in document["rows"])
                         else 1)

    def test_wrong_usage(self):
        for arguments, expected in ((("--rows", "node-hugest"),
                                     "--rows: 'node-hugest' is not known; expected one of"),
                                    (("--build", "/nowhere"), "--build: no hdt-commbench in /nowhere/bin")):
            done = compare(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)

    def test_the_list_needs_no_build(self):
        done = compare("--list", "--build", "/nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("node-large", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
