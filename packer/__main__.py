"""`python -m packer`: the command line."""

from packer.cli import run

if __name__ == "__main__":
    run()
