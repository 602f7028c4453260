"""A program that ends with a signal."""

import os


def main(descriptor: int) -> bytes:
    os.abort()
