#!/usr/bin/env python3
"""Tests of native/mlx_ffi/fetch_mlx.py with the real pip, small wheels made here, and no network.

Each test copies the script, beside requirements that name its own wheel and hash, into a folder
with spaces in its name.
"""

import base64
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.path.join(ROOT, "native", "mlx_ffi")
NAME = "mlx_cpu-9.8.7-py3-none-any.whl"


def version_header(version):
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
    return "".join(f"#define MLX_VERSION_{name} {value}\n" for name, value in parts)


def make_wheel(path, version="9.8.7", size=1000, library=None):
    library = library or os.urandom(size)
    digest = base64.urlsafe_b64encode(hashlib.sha256(library).digest()).decode().rstrip("=")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("mlx/lib/libmlx.so", library)
        wheel.writestr("mlx/include/mlx/version.h", version_header(version))
        info = "mlx_cpu-9.8.7.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: mlx-cpu\nVersion: 9.8.7\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n")
        wheel.writestr(info + "RECORD", f"mlx/lib/libmlx.so,sha256={digest},{len(library)}\n")


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mlx fetch ")
        self.addCleanup(self.remove)
        self.script = self.path("source tree", "fetch_mlx.py")
        os.makedirs(self.path("source tree", "requirements"))
        os.makedirs(self.path("wheels"))
        shutil.copy(os.path.join(SOURCE, "fetch_mlx.py"), self.script)
        self.wheel = self.path("wheels", NAME)
        make_wheel(self.wheel)
        self.pin()

    def remove(self):
        for folder, _, _ in os.walk(self.folder):
            os.chmod(folder, 0o700)
        shutil.rmtree(self.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def pin(self):
        with open(self.wheel, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        with open(self.path("source tree", "requirements", "cpu.txt"), "w", encoding="utf-8") as file:
            file.write(f"mlx-cpu==9.8.7 --hash=sha256:{digest}\n")

    def environment(self, **changes):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MLX_", "PIP_"))}
        env.update(MLX_VARIANT="cpu", MLX_CACHE_DIR=self.path("a cache"), PIP_CONFIG_FILE=os.devnull,
                   PIP_NO_INDEX="1", PIP_FIND_LINKS="file://" + self.path("wheels").replace(" ", "%20"))
        env.update(changes)
        return {name: value for name, value in env.items() if value is not None}

    def fetch(self, python=(sys.executable,), options=(), **changes):
        return subprocess.run([*python, self.script, *options], env=self.environment(**changes),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def fails(self, *words, **changes):
        result = self.fetch(**changes)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout, "")
        sentence = result.stderr.splitlines()[-1]
        self.assertTrue(sentence.startswith("mlx: "), result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        for word in words:
            self.assertIn(word, sentence)

    def cached(self):
        """What the cache holds besides the lock."""
        folder = self.path("a cache", "9.8.7")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return [name for name in names if name != ".cpu.lock"]

    def test_fetches_once(self):
        site = self.path("a cache", "9.8.7", "cpu")
        first = self.fetch()
        self.assertEqual(first.stdout, site + "\n", first.stderr)
        self.assertIn("fetching MLX 9.8.7", first.stderr)
        self.assertTrue(os.path.isfile(os.path.join(site, "mlx", "lib", "libmlx.so")))
        second = self.fetch()
        self.assertEqual((second.stdout, second.stderr), (site + "\n", ""))
        self.assertEqual(self.cached(), ["cpu"])

    def test_repairs_a_damaged_cache_and_follows_a_new_pin(self):
        self.fetch()
        library = self.path("a cache", "9.8.7", "cpu", "mlx", "lib", "libmlx.so")
        with open(library, "wb") as file:
            file.write(b"cut short")
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(os.path.getsize(library), 1000)
        make_wheel(self.wheel, size=2000)
        self.pin()
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(os.path.getsize(library), 2000)
        self.assertEqual(self.cached(), ["cpu"])

    def test_repairs_a_library_of_which_a_byte_changed(self):
        self.fetch()
        library = self.path("a cache", "9.8.7", "cpu", "mlx", "lib", "libmlx.so")
        with open(library, "rb") as file:
            whole = file.read()
        for at in (0, 500, 999):
            with open(library, "wb") as file:
                file.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            self.assertEqual(self.fetch().returncode, 0)
            with open(library, "rb") as file:
                self.assertEqual(file.read(), whole)
        self.assertEqual(self.cached(), ["cpu"])

    def test_full_disk(self):
        # A file that may not grow is what a full disk is to whoever writes it. While pip writes the
        # wheel, and while the wheel, which is smaller than what is in it, is unpacked.
        make_wheel(self.wheel, size=200000)
        self.pin()
        self.fails_with(100000, "the disk is full", "MLX_CACHE_DIR")
        make_wheel(self.wheel, library=bytes(1000000))
        self.pin()
        self.fails_with(100000, "cannot write the cache", "MLX_CACHE_DIR", "space left")
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.cached(), ["cpu"])

    def fails_with(self, largest, *words):
        limit = ["prlimit", f"--fsize={largest}", "--", sys.executable]
        if not shutil.which("prlimit"):
            self.skipTest("files cannot be limited here")
        result = self.fetch(python=limit)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertNotIn("Traceback", result.stderr.splitlines()[-1])
        for word in words:
            self.assertIn(word, result.stderr.splitlines()[-1])
        self.assertEqual(self.cached(), [])

    def test_truncated_wheel(self):
        os.truncate(self.wheel, os.path.getsize(self.wheel) // 2)
        self.fails("damaged", "run this again")
        self.assertEqual(self.cached(), [])

    def test_wheel_of_another_version(self):
        make_wheel(self.wheel, version="9.8.6")
        self.pin()
        self.fails("headers are those of MLX 9.8.6")
        self.assertEqual(self.cached(), [])

    def test_no_such_wheel(self):
        os.remove(self.wheel)
        self.fails("has no MLX 9.8.7 wheel (cpu)", "MLX_VARIANT", "MLX_DIR")
        self.assertEqual(self.cached(), [])

    def test_no_network(self):
        self.fails("cannot reach its package index", "network", PIP_NO_INDEX=None, PIP_FIND_LINKS=None,
                   PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assertEqual(self.cached(), [])

    def test_no_pip(self):
        # -I hides the packages of the user, -S those of the system: what is left has no pip.
        self.fails("has no pip", "python3-pip", python=[sys.executable, "-I", "-S"])
        self.assertEqual(self.cached(), [])

    @unittest.skipIf(os.geteuid() == 0 and not shutil.which("setpriv"), "root may write everywhere")
    def test_read_only_home(self):
        home = self.path("home")
        os.makedirs(home)
        os.chmod(home, stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
        command = [sys.executable, self.script]
        if os.geteuid() == 0:
            command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] + command
        result = subprocess.run(command, env=self.environment(HOME=home, MLX_CACHE_DIR=None, XDG_CACHE_HOME=None),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("cannot write the cache", result.stderr)
        self.assertIn("set MLX_CACHE_DIR", result.stderr)
        self.assertEqual(os.listdir(home), [])

    def test_a_cache_that_others_can_write_to(self):
        self.fetch()
        site = self.path("a cache", "9.8.7", "cpu")
        lib = os.path.join(site, "mlx", "lib")
        for path in (self.folder, self.path("a cache"), os.path.dirname(site), site, os.path.dirname(lib), lib,
                     os.path.join(lib, "libmlx.so")):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            os.chmod(path, mode | 0o002)
            self.fails(path + " can be written to by all users", "chmod go-w", "set MLX_CACHE_DIR")
            os.chmod(path, mode)
            self.assertEqual(self.fetch().returncode, 0)

    def test_a_cache_in_a_folder_as_tmp_is(self):
        os.chmod(self.folder, 0o1777)
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.fetch().returncode, 0)

    def test_a_cache_that_does_not_exist_yet_beside_one_that_others_made(self):
        os.makedirs(self.path("a cache", "9.8.7"))
        os.chmod(self.path("a cache", "9.8.7"), 0o777)
        self.fails("can be written to by all users")
        self.assertEqual(self.cached(), [])

    def test_a_link_to_a_folder_that_others_can_write_to(self):
        os.makedirs(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        os.makedirs(self.path("open", "inner"))
        os.symlink(self.path("open", "inner"), self.path("a cache"))
        self.fails(self.path("open") + " can be written to by all users")

    def test_a_group_of_others(self):
        os.makedirs(self.path("a cache"))
        os.chmod(self.path("a cache"), 0o775)
        group = next((group for group in os.getgroups() + [9999] if group not in (0, os.getegid())), None)
        try:
            os.chown(self.path("a cache"), -1, group)
        except OSError:
            self.skipTest("no other group can be given a folder here")
        self.fails(f"can be written to by the group {group}")
        os.chmod(self.path("a cache"), 0o755)
        self.assertEqual(self.fetch().returncode, 0)

    @unittest.skipIf(os.geteuid() != 0, "only root gives folders away")
    def test_a_cache_of_another_user(self):
        self.fetch()
        for path in (self.path("a cache"), self.path("a cache", "9.8.7", "cpu")):
            os.chown(path, 54321, -1)
            self.fails(path + " belongs to the user 54321", "set MLX_CACHE_DIR")
            os.chown(path, 0, -1)
            self.assertEqual(self.fetch().returncode, 0)

    def test_what_it_makes_is_for_nobody_else_to_write(self):
        before = os.umask(0)
        try:
            self.assertEqual(self.fetch().returncode, 0)
        finally:
            os.umask(before)
        for folder, _, files in os.walk(self.path("a cache")):
            for path in [folder] + [os.path.join(folder, name) for name in files]:
                self.assertEqual(os.stat(path).st_mode & 0o022, 0, path)
        self.assertEqual(self.fetch().returncode, 0)

    def test_two_at_once(self):
        runs = [subprocess.Popen([sys.executable, self.script], env=self.environment(),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
                for _ in range(3)]
        outputs = [run.communicate() for run in runs]
        self.assertEqual({output for output, _ in outputs}, {self.path("a cache", "9.8.7", "cpu") + "\n"})
        self.assertEqual(sum("Successfully downloaded" in errors for _, errors in outputs), 1)
        self.assertEqual(self.cached(), ["cpu"])

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = subprocess.Popen([sys.executable, self.script], env=self.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            deadline = time.time() + 5
            while not any(name.startswith(".cpu.tmp") for name in self.cached()) and time.time() < deadline:
                time.sleep(0.005)
            run.send_signal(number)
            output, _ = run.communicate()
            self.assertEqual((run.returncode, output), (128 + number, b""))
            self.assertEqual(self.cached(), [])

    def test_cleans_up_after_a_killed_run_quietly(self):
        os.makedirs(self.path("a cache", "9.8.7", ".cpu.tmp-left", "site", "mlx"))
        result = self.fetch(options=["--quiet"])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(self.cached(), ["cpu"])

    def test_an_mlx_of_ones_own(self):
        site = self.path("own site")
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(site)
        for given in (site, os.path.join(site, "mlx")):
            self.assertEqual(self.fetch(MLX_DIR=given).stdout, site + "\n")
        self.fails("has no lib/libmlx", "unset it", MLX_DIR=self.folder)
        with open(os.path.join(site, "mlx", "include", "mlx", "version.h"), "w", encoding="utf-8") as file:
            file.write(version_header("9.9.0"))
        self.fails("holds MLX 9.9.0", "needs 9.8.7", MLX_DIR=site)

    def test_unknown_variant(self):
        self.fails("MLX_VARIANT=tpu is not a variant", MLX_VARIANT="tpu")

    def test_all_variants_pin_one_version(self):
        sys.path.insert(0, SOURCE)
        import fetch_mlx
        self.assertEqual(len({fetch_mlx.requirements(variant)[1] for variant in fetch_mlx.VARIANTS}), 1)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
