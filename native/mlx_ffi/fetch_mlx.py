#!/usr/bin/env python3
"""Obtains the MLX library that mlx-c is built against and prints the folder that holds it.

    fetch_mlx.py [--variant cpu|cuda12|cuda13|metal] [--quiet]

The last line on stdout is a folder with `mlx/lib` and `mlx/include` (or, for an MLX_DIR that is an
installation prefix, with `lib` and `include/mlx`). Environment: MLX_DIR (an MLX of your own),
MLX_VARIANT, MLX_CACHE_DIR. What is fetched, and its hashes, stands in requirements/VARIANT.txt.
"""

import argparse
import base64
import contextlib
import csv
import ctypes
import glob
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import zipfile

try:
    import fcntl
    import grp
    import pwd
except ImportError:
    sys.exit("mlx: there is no MLX wheel for this system: set MLX_DIR to an MLX of your own")

HERE = os.path.dirname(os.path.abspath(__file__))
VARIANTS = ("cpu", "cuda12", "cuda13", "metal")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MARKER = ".mlx-requirements"
OWN = "set MLX_DIR to an MLX of your own"


class Failure(Exception):
    """One sentence: the cause and the remedy."""


def requirements(variant):
    """The variant's requirements file, its MLX version, and a digest of what it asks for."""
    path = os.path.join(HERE, "requirements", variant + ".txt")
    try:
        with open(path, encoding="utf-8") as file:
            text = "".join(line for line in file if not line.startswith("#"))
    except OSError as error:
        raise Failure(f"cannot read {path} ({error.strerror}): the source tree is incomplete, get it again")
    match = re.search(r"^mlx-[a-z0-9-]+==([0-9.]+)", text, re.M)
    if not match:
        raise Failure(f"{path} names no MLX version: restore the file from the repository")
    return path, match.group(1), hashlib.sha256(text.encode()).hexdigest()


def default_variant():
    system, machine = platform.system(), platform.machine()
    if system == "Darwin":
        if machine != "arm64":
            raise Failure(f"there is no MLX wheel for macOS on {machine}: {OWN}")
        return "metal"
    if system != "Linux":
        raise Failure(f"there is no MLX wheel for {system}: {OWN}")
    version = cuda_driver_version()
    return "cuda13" if version >= 13000 else "cuda12" if version >= 12000 else "cpu"


def cuda_driver_version():
    """13000 for CUDA 13.0; 0 without a driver. Asking does not initialise the GPU."""
    version = ctypes.c_int(0)
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return version.value


def check_glibc(variant):
    """pip would only say that no distribution matches."""
    if variant == "metal" or platform.system() != "Linux":
        return
    try:
        found = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
        old = tuple(int(part) for part in found.split(".")[:2]) < (2, 35)
    except (AttributeError, OSError, ValueError):
        found, old = "none", True
    if old:
        raise Failure(f"MLX's wheels need glibc 2.35 or newer (found: {found}): use a newer system or {OWN}")


def prefix_of(site):
    """Where lib/ and include/ are: in site/mlx for a wheel, in site itself for a system install."""
    inner = os.path.join(site, "mlx")
    return inner if os.path.isdir(os.path.join(inner, "lib")) else site


def header_version(prefix):
    try:
        with open(os.path.join(prefix, "include", "mlx", "version.h"), encoding="utf-8") as file:
            found = dict(re.findall(r"#define MLX_VERSION_(MAJOR|MINOR|PATCH) (\d+)", file.read()))
        return ".".join(found[part] for part in ("MAJOR", "MINOR", "PATCH"))
    except (OSError, KeyError):
        return None


def library_of(prefix):
    for name in ("libmlx.so", "libmlx.dylib"):
        path = os.path.join(prefix, "lib", name)
        if os.path.isfile(path) and os.path.getsize(path) > 0:
            return path
    return None


def own_site(version):
    """MLX_DIR, checked. The folder `mlx` of a wheel stands for the folder around it."""
    site = os.path.abspath(os.environ["MLX_DIR"])
    prefix = prefix_of(site)
    if not library_of(prefix) or not header_version(prefix):
        raise Failure(f"MLX_DIR={site} has no lib/libmlx.so (or .dylib) with include/mlx/version.h beside it: "
                      f"correct it, or unset it to have MLX {version} downloaded")
    found = header_version(prefix)
    if found != version:
        raise Failure(f"MLX_DIR={site} holds MLX {found}, but this build needs {version}: "
                      f"point it to MLX {version}, or unset it to have that downloaded")
    wheel = prefix == site and os.path.basename(site) == "mlx"
    return os.path.dirname(site) if wheel else site


def problem(site, version):
    """What is wrong with an unpacked wheel, or None. Its libraries are compared with its own RECORD."""
    found = header_version(os.path.join(site, "mlx"))
    if not library_of(os.path.join(site, "mlx")):
        return "it holds no mlx/lib/libmlx"
    if found != version:
        return f"its headers are those of MLX {found or '(none)'}"
    for record in glob.glob(os.path.join(glob.escape(site), "mlx_*.dist-info", "RECORD")):
        with open(record, newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                if len(row) == 3 and row[2] and (row[0].startswith("mlx/lib/") or ".libs/" in row[0]):
                    path = os.path.join(site, row[0])
                    if not os.path.isfile(path) or os.path.getsize(path) != int(row[2]):
                        return f"{row[0]} is missing or cut short"
                    if row[1] != digest_of(path):
                        return f"{row[0]} is damaged"
    return None


def digest_of(path):
    """As a wheel's RECORD writes it."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return "sha256=" + base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")


def is_complete(site, version, digest):
    try:
        with open(os.path.join(site, MARKER), encoding="utf-8") as file:
            return file.read() == digest and problem(site, version) is None
    except (OSError, ValueError):
        return False


def cache_root():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.abspath(os.environ.get("MLX_CACHE_DIR") or os.path.join(base, "mlx"))


def check_private(path):
    """Refuses a folder of the cache that others can write to, or put another in the place of: what is in it is
    linked and run. Looks at the folders around it and at the ends of links likewise."""
    path, seen = os.path.abspath(path), set()
    while path not in seen:
        seen.add(path)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            found = None  # It will be made.
        if found:
            if stat.S_ISLNK(found.st_mode):
                check_private(os.path.realpath(path))
            wrong = exposed(found)
            if wrong:
                raise Failure(f"the cache is not used, because {path} {wrong}, who could put other code there: remove it "
                              "if it is not yours, or mend it (chmod go-w), or set MLX_CACHE_DIR to another folder")
        path = os.path.dirname(path)


def exposed(found):
    """How others than this user and root get at what has this status, or None."""
    if found.st_uid not in (0, os.geteuid(), unmapped_user()):
        return f"belongs to {name_of(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        return None  # A link has no permissions of its own.
    # In a sticky folder, such as /tmp, nobody can touch what belongs to others.
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & stat.S_IWOTH and not sticky:
        return "can be written to by all users"
    if found.st_mode & stat.S_IWGRP and not sticky and not is_private_group(found.st_gid):
        return f"can be written to by the group {found.st_gid}"
    return None


def unmapped_user():
    """Whom a container shows as the owner of what its host keeps to itself, which nobody in it can change."""
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file, \
                open("/proc/self/uid_map", encoding="ascii") as users:
            return None if "4294967295" in users.read() else int(file.read())
    except (OSError, ValueError):
        return None


def name_of(user):
    try:
        return "the user " + pwd.getpwuid(user).pw_name
    except KeyError:
        return f"the user {user}"


def is_private_group(group):
    """Root's, or the group that many systems make for each user, with nobody else in it."""
    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
        return group.gr_gid == 0 or (group.gr_name == user and set(group.gr_mem) <= {user})
    except KeyError:
        return False


@contextlib.contextmanager
def locked(path, say):
    """One fetch at a time. The kernel releases the lock of a killed process."""
    with open(path, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching MLX, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetch(variant, version, path, digest, site, say, quiet):
    parent, name = os.path.split(site)
    # Nothing in the cache is for others to change, whatever the user's files are otherwise.
    os.umask(os.umask(0o022) | 0o022)
    os.makedirs(parent, exist_ok=True)
    check_private(parent)
    with locked(os.path.join(parent, f".{name}.lock"), say):
        if is_complete(site, version, digest):
            return
        for left in glob.glob(os.path.join(glob.escape(parent), f".{name}.tmp-*")):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
        check_glibc(variant)
        work = os.path.join(parent, f".{name}.tmp-{os.getpid()}")
        try:
            os.mkdir(work)
            say(f"fetching MLX {version} ({variant}) into {site}")
            wheels = download(variant, version, path, os.path.join(work, "wheels"), quiet)
            fresh = os.path.join(work, "site")
            unpack(wheels, fresh)
            wrong = problem(fresh, version)
            if wrong:
                raise Failure(f"the MLX wheel is not what {path} promises ({wrong}): report this, or {OWN}")
            with open(os.path.join(fresh, MARKER), "w", encoding="utf-8") as file:
                file.write(digest)
            if os.path.lexists(site):
                os.rename(site, os.path.join(work, "old"))
            os.rename(fresh, site)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def download(variant, version, path, folder, quiet):
    if importlib.util.find_spec("pip") is None:
        raise Failure(f"{sys.executable} has no pip, which fetches MLX: install it (Debian: apt-get install "
                      "python3-pip; elsewhere: python3 -m ensurepip), then run this again")
    # The wheels are for any Python 3 but declare 3.10: naming one lets an older Python fetch them.
    # Without a retry pip would not say that it was the connection that failed.
    command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps", "--only-binary=:all:",
               "--no-cache-dir", "--python-version", "3.12", "--retries", "2", "--no-input",
               "--disable-pip-version-check", "-d", folder, "-r", path]
    # pip's own temporary files go where a killed run's are cleaned up, and where there is space.
    env = dict(os.environ, PIP_REQUIRE_VIRTUALENV="0", TMPDIR=os.path.dirname(folder))
    # Were it interrupted between its start and the `try`, pip would go on and write.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    process = subprocess.Popen(command + (["-q"] if quiet else []), env=env, stdout=sys.stderr,
                               stderr=subprocess.PIPE, universal_newlines=True, preexec_fn=unblock)
    try:
        unblock()
        complaint = process.stderr.read()
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if status != 0:
        raise Failure(explain(complaint, variant, version))
    return sorted(glob.glob(os.path.join(glob.escape(folder), "*.whl")))


def unblock():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def explain(complaint, variant, version):
    """pip's errors run over many lines; the cause is in the words."""
    words = complaint.lower()
    wheel = f"the MLX {version} wheel ({variant})"
    if "do not match the hashes" in words or "is invalid" in words or "incompleteread" in words:
        return (f"{wheel} arrived damaged (its hash is not the pinned one): run this again, and if it stays so, "
                "remove the bad copy from the pip mirror or PIP_FIND_LINKS folder it comes from")
    if "no space left" in words or "disk quota" in words or "file too large" in words:
        return "the disk is full: free some space or set MLX_CACHE_DIR to another disk, then run this again"
    if any(word in words for word in ("connection", "timed out", "name resolution", "ssl", "proxy", "unreachable")):
        return f"pip cannot reach its package index to fetch {wheel}: check the network or proxy, or {OWN}"
    if "no matching distribution" in words:
        return (f"pip's package index has no {wheel[4:]} for {platform.system()} on {platform.machine()}: "
                f"choose another MLX_VARIANT ({', '.join(VARIANTS)}), or {OWN}")
    lines = [line for line in complaint.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    cause = (errors or lines or ["pip gave no reason"])[-1]
    return f"pip could not fetch {wheel} ({cause.strip()}): mend that, or {OWN}"


def unpack(wheels, folder):
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        os.remove(wheel)


def main():
    parser = argparse.ArgumentParser(description="Fetches MLX and prints the folder that holds it.")
    parser.add_argument("--variant", choices=VARIANTS)
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")
    options = parser.parse_args()

    def say(text):
        if not options.quiet:
            print(f"mlx: {text}", file=sys.stderr, flush=True)

    variant = options.variant or os.environ.get("MLX_VARIANT") or None
    if variant is not None and variant not in VARIANTS:
        raise Failure(f"MLX_VARIANT={variant} is not a variant: set it to {', '.join(VARIANTS[:-1])} or {VARIANTS[-1]}")
    if os.environ.get("MLX_DIR"):
        return own_site(requirements(variant or "cpu")[1])
    variant = variant or default_variant()
    path, version, digest = requirements(variant)
    site = os.path.join(cache_root(), version, variant)
    check_private(site)
    for library in glob.glob(os.path.join(glob.escape(site), "mlx", "lib", "lib*")):
        check_private(library)
    if not is_complete(site, version, digest):
        fetch(variant, version, path, digest, site, say, options.quiet)
    return site


def stop(number, _frame):
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    for each in SIGNALS:
        signal.signal(each, stop)
    try:
        print(main())
    except Failure as failure:
        sys.exit(f"mlx: {failure}")
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        sys.exit(f"mlx: cannot write the cache{where} ({error.strerror}): "
                 "set MLX_CACHE_DIR to a folder that you may write to, with space left")
