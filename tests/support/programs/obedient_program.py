"""A program that does what the file says, in words: each is a line of it."""

import os
import resource
import signal
import struct
import time

_kept: list[bytearray] = []
_damaged: list[bool] = []


def main(descriptor: int) -> bytes:
    """Whatever it did, the number of its process and the file's words are the answer."""
    words = os.pread(descriptor, 1 << 16, 0).decode()
    for word in words.split("\n"):
        if word == "damage":  # the next file ends the process
            _damaged.append(True)
        elif word == "abort" or _damaged:
            os.abort()
        elif word == "exit":
            os._exit(3)
        elif word == "raise":
            signal.raise_signal(signal.SIGSEGV)
        elif word == "sleep":
            time.sleep(600)
        elif word == "spin":
            while True:
                pass
        elif word == "allocate":  # as much as it gets
            return f"{os.getpid()} {_allocated()}".encode()
        elif word == "keep":
            _kept.append(bytearray(300 << 20))
        elif word == "open":
            os.dup(descriptor)
        elif word == "garbage":
            os.write(3, b"\xff" * 100)
        elif word == "forge":  # an empty answer to the first file, twice
            os.write(3, 2 * struct.pack("<4sQ?Q", b"ANSW", 0, True, 0))
        elif word == "work":
            until = time.process_time() + 1.2
            while time.process_time() < until:
                pass
        elif word == "hang up":
            os.close(3)
            time.sleep(600)
        elif word == "large":
            return bytes(1 << 20)
        elif word == "limit":
            return f"{os.getpid()} {resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time():.3f}".encode()
    return f"{os.getpid()} {words}".encode()


def _allocated() -> str:
    try:
        return f"{len(bytearray(1 << 30))}"
    except MemoryError:
        return "MemoryError"
