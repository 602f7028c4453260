"""Fuzzing of what parses: inputs made by mutation, under coverage guidance where atheris is installed.

A target is one file of `tests/fuzz/targets`, found by listing the folder:

    check(data: bytes) -> None          gives `data` to a parser of packer. The contract: it returns or raises a
                                        PackerError that a terminal can show. Anything else is a finding: another
                                        exception, a signal, more than 5 s of processor time, more than 512 MiB beyond
                                        what the process had. Where another library reads the same thing, `check`
                                        compares, and raises Disagreement. `refusable` encloses what may be refused
                                        while the rest of the check goes on.
    seeds() -> Iterable[bytes]          sound inputs to start from, made by code
    TOKENS: tuple[bytes, ...]           words of the grammar, which mutations put in; optional
    MOST_BYTES: int                     of an input, where 8192 are too few or too many; optional

Both engines, atheris (libFuzzer) and Hypothesis, take the same targets. `tests/fuzz/corpus/<target>` holds inputs that
an engine found to reach further than the seeds do, and each input that was once a finding;
`tests/hostile/test_fuzz.py` gives all of them to the targets on every run.
"""
