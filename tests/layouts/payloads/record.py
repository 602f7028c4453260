"""Writes values as the pyarrow of this environment serializes them: pyarrow-VERSION.json, name -> hex.

Run with Python 3.6 and pyarrow 0.10.0, 3.7 and 0.14.1 (numpy 1.16.6), 3.11 and 11.0.0 (numpy below 2); its results are
committed, since later versions have no pyarrow.serialize.
"""

import json

import numpy as np
import pyarrow as pa

JPEG = b"\xff\xd8\xff\xe0jpeg\xff\xd9"
VALUES = {
    "pair": (JPEG, 7),
    "negative": (JPEG, -(2**40)),
    "zero": (b"", 0),
    "list": [JPEG, 7],
    "bytes": JPEG,
    "keys": [b"0", b"1", b"10"],
    "length": 3,
    "plain": [None, True, 1.5, "text", b"raw", [2, [b"deep"]]],
    "array": [np.arange(4, dtype=np.uint8), 7],
}

if __name__ == "__main__":
    found = {name: pa.serialize(value).to_buffer().to_pybytes().hex() for name, value in VALUES.items()}
    with open(f"pyarrow-{pa.__version__}.json", "w") as file:
        json.dump(found, file, indent=1)
