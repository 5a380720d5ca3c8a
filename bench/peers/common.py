"""What the peers share: threads, and how one says what it cannot do."""

import threading
import time


class Absent(Exception):
    """That a framework cannot do a workload, and why."""


def all_at_once(work, threads):
    """Calls `work` in so many threads, and hands back what one of them answered."""
    results = [None] * threads

    def run(i):
        results[i] = work()

    running = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if any(result is None for result in results):
        raise RuntimeError("a thread failed")
    return [results[0]]


def beside(multiply, add, samples):
    """The median and the last but one in a hundred of `add`, while a thread multiplies; in ns."""
    enough, busy, failures = threading.Event(), threading.Event(), []

    def work():
        try:
            while not enough.is_set():
                multiply()
                busy.set()
        except Exception as error:
            failures.append(error)
            busy.set()

    other = threading.Thread(target=work)
    other.start()
    busy.wait()
    times = []
    for _ in range(samples):
        begin = time.perf_counter_ns()
        add()
        times.append(time.perf_counter_ns() - begin)
    enough.set()
    other.join()
    if failures:
        raise failures[0]
    times.sort()
    return [times[samples // 2], times[samples * 99 // 100]]
