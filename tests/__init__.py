"""Tests of packer: a folder per room of the package, and `support`, what they share. No test imports another."""
