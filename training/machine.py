"""Settings of the process that do not change results, only how soon they come, and those that fix results."""

from __future__ import annotations

import ctypes
import ctypes.util

import torch

# glibc's mallopt parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def prepare(threads: int, seed: int) -> None:
    """Fix the seed and the number of threads, and keep freed memory in the process.

    Each step frees and takes hundreds of megabytes; handing them back to the system and clearing them anew
    takes about half of a step's time. Where the C library has no ``mallopt`` nothing is changed.
    """
    library = ctypes.util.find_library("c")
    mallopt = getattr(ctypes.CDLL(library), "mallopt", None) if library else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_M_TOP_PAD, 2**28)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
