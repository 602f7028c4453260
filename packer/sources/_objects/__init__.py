"""Objects: samples of Python objects (data sets, sequences, iterables) as a source; no member of the registry."""
