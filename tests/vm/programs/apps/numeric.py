"""NumPy at work: BLAS, LAPACK, FFT, sorting, growing arrays, forked workers.

Prints digests and values in full precision; argument: scale."""

import hashlib
import multiprocessing
import sys
import threading

import numpy as np

scale = int(sys.argv[1])


def show(title, array):
    array = np.ascontiguousarray(array)
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:32]
    print(f"{title}: {array.dtype}{list(array.shape)} {digest}", flush=True)


def worker(seed):
    values = np.random.default_rng(seed).standard_normal(100_000)
    shared[seed * 1000 : (seed + 1) * 1000] += 1
    return float(np.sort(values)[::1000].sum()), int(shared.sum())


print("numpy", np.__version__)
rng = np.random.default_rng(42)
a = rng.standard_normal((200 * scale, 200 * scale))
b = a @ a.T + 1000 * np.eye(len(a))
show("product", b)
x = np.linalg.solve(b, a[:, 0])
show("solution", x)
print("residual below 1e-9:", bool(np.abs(b @ x - a[:, 0]).max() < 1e-9))
show("eigenvalues", np.linalg.eigvalsh(b[:80, :80]))
show("singular values", np.linalg.svd(a[:60, :90], compute_uv=False))

signal = rng.standard_normal(1 << 17)
show("spectrum", np.fft.rfft(signal))
show("back", np.fft.irfft(np.fft.rfft(signal)))

numbers = rng.integers(0, 1 << 40, size=400_000 * scale)
show("sorted", np.sort(numbers))
show("order", np.argsort(numbers, kind="stable")[::97])
values, counts = np.unique(numbers % 1009, return_counts=True)
show("counts", counts)

# Arrays that grow in place (mremap) and temporaries that come and go (mmap).
grown = np.arange(1000, dtype=np.int64)
for step in range(12):
    grown.resize(len(grown) * 2, refcheck=False)
    grown[len(grown) // 2 :] = step
show("grown", grown)
total = np.zeros(1 << 19)
for step in range(8):
    total += np.sqrt(np.full(1 << 19, step, dtype=np.float64)) * 2
show("temporaries", total)

# A file mapped beside all that, and written back.
mapped = np.memmap("matrix.bin", dtype=np.float64, mode="w+", shape=(500, 500))
mapped[:] = np.outer(np.arange(500), np.arange(500))
mapped.flush()
show("memmap", np.fromfile("matrix.bin"))

results = {}
threads = [
    threading.Thread(target=lambda n=n: results.update({n: float(np.cumsum(np.arange(n * 50_000.0))[-1])}))
    for n in range(1, 5)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads:", sorted(results.items()))

# Forked workers see the parent's array and change only their own copy of it.
shared = np.ones(1 << 18)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print("workers:", pool.map(worker, range(4), chunksize=4))
print("parent:", int(shared.sum()))
