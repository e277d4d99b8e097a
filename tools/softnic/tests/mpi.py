# SPDX-License-Identifier: Apache-2.0
"""Each rank of MPI sends bytes to the next and compares what comes from the one before; then all add their ranks.

Usage, under `softnic run`: mpirun -n N python mpi.py"""
import random
import sys

from mpi4py import MPI

SIZES = (1, 64, 4096, 100_000, 3_000_000)  # inline, eager and rendezvous


def message(rank, size):
    return random.Random(f"{rank} {size}").randbytes(size)


def main():
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    assert ranks > 1, "mpirun -n 2"
    before = (rank - 1) % ranks
    for size in SIZES:
        got = bytearray(size)
        world.Sendrecv(message(rank, size), (rank + 1) % ranks, 0, got, before, 0)
        assert got == message(before, size), f"{size} bytes from rank {before}"
    assert world.allreduce(rank) == ranks * (ranks - 1) // 2
    print(f"rank {rank} of {ranks}: {len(SIZES)} messages were right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
