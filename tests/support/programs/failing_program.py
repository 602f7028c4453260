"""A program that ends with an exit code."""

import os


def main(descriptor: int) -> bytes:
    os._exit(3)
