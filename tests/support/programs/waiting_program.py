"""A program that does not end."""

import time


def main(descriptor: int) -> bytes:
    time.sleep(600)
    return b""
