#!/usr/bin/env python3
"""The reference that `./run docs` makes: Doxygen has no warning, and what programs call is described.

    tests/docs/reference_test.py [unittest's arguments]
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "client", "install", "docs"))
from doxygen_filter import Filter  # noqa: E402


def text_of(element):
    for space in element.iter("sp"):  # of code
        space.text = " "
    return " ".join("".join(element.itertext()).split())


def description_of(element):
    return f'{text_of(element.find("briefdescription"))} {text_of(element.find("detaileddescription"))}'.strip()


class Reference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.where = tempfile.mkdtemp(prefix="rkv-docs-")
        cls.addClassCleanup(shutil.rmtree, cls.where)
        done = subprocess.run(["doxygen", "client/install/docs/Doxyfile"], cwd=ROOT, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, RKV_DOCS=cls.where))
        cls.status, cls.said = done.returncode, done.stdout
        cls.index = ElementTree.parse(os.path.join(cls.where, "xml", "index.xml")).getroot()

    def compound(self, kind, name):
        found = [one.get("refid") for one in self.index if (one.get("kind"), one.findtext("name")) == (kind, name)]
        self.assertEqual(len(found), 1, name)
        return ElementTree.parse(os.path.join(self.where, "xml", found[0] + ".xml")).getroot().find("compounddef")

    def functions_of(self, kind, name):
        """Public functions and what is said of them. Without constructors, destructors and operators."""
        short = name.rpartition("::")[2]
        for member in self.compound(kind, name).iter("memberdef"):
            called = member.findtext("name")
            if member.get("kind") == "function" and member.get("prot") == "public" and \
                    called.lstrip("~") != short and not called.startswith("operator"):
                yield called, description_of(member)

    def test_no_warning(self):
        self.assertEqual((self.status, self.said), (0, ""))

    def test_every_public_header_has_a_page_with_its_comment(self):
        names = {one.findtext("name") for one in self.index if one.get("kind") == "file"}
        for folder in "client", "common", "rdma", "rdma/extras":
            for _, _, headers in os.walk(os.path.join(ROOT, folder, "include")):
                self.assertLessEqual(set(headers), names)
        self.assertIn("auto client = rkv::Client::connect", description_of(self.compound("file", "client.h")))

    def test_functions_are_described(self):
        for name, least in (("Client", 15), ("Operations", 20), ("AsyncClient", 15), ("SharedClient", 8),
                            ("Call", 3), ("Pending", 2)):
            found = list(self.functions_of("class", f"rkv::{name}"))
            self.assertGreaterEqual(len(found), least, name)
            self.assertEqual([called for called, text in found if not text], [], name)
            self.assertNotEqual(description_of(self.compound("class", f"rkv::{name}")), "", name)

    def test_functions_of_c_are_described(self):
        with open(os.path.join(ROOT, "tests", "embedding", "c_functions.txt"), encoding="utf-8") as names:
            wanted = names.read().split()
        found = dict(self.functions_of("file", "c.h"))
        self.assertEqual(sorted(found), sorted(wanted))
        self.assertEqual([called for called, text in found.items() if not text], [])


class TheFilter(unittest.TestCase):
    def filtered(self, text):
        return Filter(("// Head.\n#pragma once\n" + text).splitlines()).run().split("#pragma once\n")[1]

    def test_a_comment_describes_what_follows(self):
        self.assertEqual(self.filtered("// Reads <x> at 5%.\nint f();\n"), "/// Reads \\<x\\> at 5\\%.\nint f();\n")
        self.assertIn("///< how many", self.filtered("struct A {\n  int n;  // how many\n};\n"))

    def test_code_in_comments_stays_as_it_is(self):
        self.assertIn("/// @code{.cpp}\n/// a<b> & c;\n///   d;\n/// @endcode\n",
                      self.filtered("// Use:\n//   a<b> & c;\n//     d;\nint f();\n"))

    def test_functions_that_follow_share_a_comment_or_have_that_of_their_section(self):
        self.assertIn("/// Described with f().\n///\n/// Both.\nint g();",
                      self.filtered("// Both.\nint f();\nint g();\n"))
        self.assertNotIn("///", self.filtered("// Both.\nint f();\n\nint g();\n").split("int f")[1])
        text = self.filtered("class A {\n public:\n  // ---- reads. They block.\n\n  int f();\n};\n")
        self.assertIn("/// @name Reads\n  /// They block.\n  /// @{\n", text)
        self.assertIn("  /// They block.\n  int f();\n/// @}\n};", text)

    def test_bodies_and_what_is_private_are_left_alone(self):
        for text in ("inline int f() {\n  // why\n  return 1;\n}\n",
                     "class A {\n  // why\n  int n_;  // what\n};\n"):
            self.assertEqual(self.filtered(text), text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
