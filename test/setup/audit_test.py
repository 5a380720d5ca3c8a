#!/usr/bin/env python3
"""Tests of bin/audit: the project as it is passes, and with one thing changed it does not."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AUDIT = os.path.join(ROOT, "bin", "audit")


class AuditTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mlx audit ")
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(os.path.join(ROOT, "native"), os.path.join(self.folder, "native"))
        for name in ("Cargo.toml", "Cargo.lock", "deny.toml", "mix.exs"):
            shutil.copy(os.path.join(ROOT, name), self.folder)
        self.environment = dict(os.environ)

    def change(self, name, old, new):
        path = os.path.join(self.folder, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertIn(old, text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new, 1))

    def audit(self):
        return subprocess.run([sys.executable, AUDIT, self.folder], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)

    def refused(self, *words):
        result = self.audit()
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_the_project(self):
        result = self.audit()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("crates", result.stdout)

    def test_a_crate_of_a_repository(self):
        self.change("Cargo.lock", '"registry+https://github.com/rust-lang/crates.io-index"',
                    '"git+https://example.com/half?rev=1#2"')
        self.refused("comes from git+https://example.com/half")

    def test_a_crate_of_another_registry(self):
        self.change("Cargo.lock", "rust-lang/crates.io-index", "rust-lang/crates.io-index.evil")
        self.refused("crates.io-index.evil, which deny.toml does not allow")

    def test_a_crate_without_a_checksum(self):
        self.change("Cargo.lock", "checksum = ", "other = ")
        self.refused("has no checksum in Cargo.lock")

    def test_licences(self):
        self.change("deny.toml", '  "ISC",\n', "")
        self.refused("libloading 0.8", "has the licence 'ISC'")
        self.change("deny.toml", '  "Unicode-3.0",\n', "")
        self.refused("has the licence '(MIT OR Apache-2.0) AND Unicode-3.0'")

    def test_a_second_version(self):
        self.change("deny.toml", '  { crate = "shlex"', '  { crate = "memchr"')
        self.refused("there are 2 versions of shlex", "skips memchr, of which there is one version")

    def test_a_forbidden_crate(self):
        self.change("deny.toml", 'crate = "reqwest"', 'crate = "libc"')
        self.refused("libc is among the crates")

    def test_elixir_from_a_repository(self):
        self.change("mix.exs", '{:nx, "~> 0.13", optional: true}', '{:nx, github: "elixir-nx/nx", optional: true}')
        self.refused("mix.exs has a dependency from the repository elixir-nx/nx")

    def test_a_lock_of_mix(self):
        entry = '{:hex, :nx, "1.0.0", "' + "a" * 64 + '", [:mix], [], "hexpm", "' + "b" * 64 + '"}'
        changed = [entry.replace(*words) for words in (("hexpm", "mine"), ("a" * 64, ""), (":hex", ":git"))]
        for text in [entry] + changed:
            with open(os.path.join(self.folder, "mix.lock"), "w", encoding="utf-8") as file:
                file.write('%{\n  "nx": ' + text + ",\n}\n")
            if text == entry:
                self.assertEqual(self.audit().returncode, 0)
            else:
                self.refused("nx in mix.lock is not a package of Hex")

    def test_a_licence_of_an_elixir_dependency(self):
        self.environment["MLX_DEPS_PATH"] = os.path.join(self.folder, "sources")
        os.makedirs(os.path.join(self.folder, "sources", "nx"))
        for text, right in (('licenses: ["MIT"]', True), ('licenses: ["SSPL-1.0"]', False), ("", False)):
            with open(os.path.join(self.folder, "sources", "nx", "mix.exs"), "w", encoding="utf-8") as file:
                file.write(text)
            if right:
                self.assertEqual(self.audit().returncode, 0)
            else:
                self.refused("nx has the licence")

    def test_a_wheel_without_hashes(self):
        self.change(os.path.join("native", "mlx_ffi", "requirements", "cpu.txt"), "--hash=sha256:", "--hash=md5:")
        self.refused("cpu.txt asks for mlx-cpu==", "without a version and hashes")


if __name__ == "__main__":
    unittest.main()
