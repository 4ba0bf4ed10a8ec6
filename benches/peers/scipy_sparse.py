"""The products of `benches/sparse.rs` by SciPy, in the same format: scipy_sparse.py FOLDER_OF_DATASETS.

Seconds are medians; SciPy runs on one thread. A transposed product is `x.T @ y`, without a plan."""
import json
import statistics
import sys
import time
import zipfile

import numpy as np
import scipy
import scipy.sparse as sp


def parsed(lines):
    indptr, indices, values = [0], [], []
    for line in lines:
        for entry in line.split()[1:]:
            column, value = entry.split(":")
            indices.append(int(column) - 1)
            values.append(float(value))
        indptr.append(len(indices))
    x = sp.csr_matrix((np.array(values, np.float32), np.array(indices), np.array(indptr)))
    x.sum_duplicates()
    return x


def median(call):
    times, start = [], time.perf_counter()
    while len(times) < 7 or time.perf_counter() - start < 0.5:
        one = time.perf_counter()
        call()
        times.append(time.perf_counter() - one)
    return statistics.median(times)


def main(folder):
    words = zipfile.ZipFile(f"{folder}/20news-bow/20ng.zip").read("20ng/train.feat").decode()
    with open(f"{folder}/a9a/a9a") as file:
        matrices = {"20news-bow": parsed(words.splitlines()), "a9a": parsed(file)}
    for matrix, x in matrices.items():
        def show(name, n, seconds):
            print(json.dumps({"bench": "sparse", "name": name, "matrix": matrix, "n": n, "threads": 1,
                              "seconds": round(seconds, 7), "library": f"scipy {scipy.__version__}"}))
        for n in (1, 64, 256):
            y, d = (np.ones((rows, n), np.float32) for rows in (x.shape[1], x.shape[0]))
            y, d = (y[:, 0], d[:, 0]) if n == 1 else (y, d)
            show("csr·dense", n, median(lambda: x @ y))
            show("transposed·dense", n, median(lambda: x.T @ d))
        show("XᵀX", x.shape[1], median(lambda: x.T @ x))


main(sys.argv[1])
