"""Source -> pack: plan the parts, build each one, publish them all at once.

convert.py has the call that users and the command line make: `packer.convert`.
"""
