#!/usr/bin/env python3
"""check.py sees what is wrong, and searches a model that has changed since it was recorded."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# Without NO_RULE the number never passes 3.
MODEL = """/* A number that rises.
 *
 * accept: the number has a limit
 * reject NO_RULE: the limit
 */
active proctype rise() {
  byte number;
  do
#ifndef NO_RULE
  :: number < 3 -> number++
  :: number == 3 -> break
#else
  :: number < 9 -> number++
  :: number == 9 -> break
#endif
  od;
  assert(number <= 3)
}
"""


class Check(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.check = pathlib.Path(scratch.name) / "check.py"
        self.model = pathlib.Path(scratch.name) / "number.pml"
        shutil.copy(HERE / "check.py", self.check)
        self.model.write_text(MODEL, encoding="utf-8")

    def run_check(self, *options):
        return subprocess.run([sys.executable, self.check, self.model, *options], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def change(self, old, new):
        self.assertIn(old, MODEL)
        self.model.write_text(MODEL.replace(old, new), encoding="utf-8")

    def test_a_right_model_is_accepted_and_its_variant_rejected(self):
        done = self.run_check()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"as it is +\d+ accept")
        self.assertRegex(done.stdout, r"NO_RULE +\d+ reject")

    def test_a_rule_that_does_nothing_is_seen(self):
        self.change("number < 9", "number < 2")
        self.assertEqual(self.run_check("--record").returncode, 1)
        self.assertEqual(self.run_check("--unless-recorded").returncode, 1)

    def test_a_recorded_model_is_searched_when_it_has_changed(self):
        self.assertIn("is not recorded", self.run_check("--unless-recorded").stdout)
        self.assertEqual(self.run_check("--record").returncode, 0)
        again = self.run_check("--unless-recorded")
        self.assertEqual(again.returncode, 0)
        self.assertNotIn("verdict", again.stdout)
        self.change("assert(number <= 3)", "assert(number <= 2)")
        changed = self.run_check("--unless-recorded")
        self.assertEqual(changed.returncode, 1)
        self.assertIn("WRONG", changed.stdout)

    def test_a_record_is_of_the_whole(self):
        self.assertEqual(self.run_check("--record", "--only", "NO_RULE").returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
