# SPDX-License-Identifier: Apache-2.0
"""Moves bytes between two processes by a transfer library, and compares every one.

Usage, under `softnic run`: wheels.py nixl|mooncake. The second process only owns memory: it fills it, checks it.
"""
import ctypes
import multiprocessing
import os
import random
import sys

SIZE = 1 << 20
ROUNDS = 8


class Memory:
    """Bytes that stay where they are."""

    def __init__(self):
        self.bytes = bytearray(SIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))

    def fill(self, seed):
        self.bytes[:] = random.Random(seed).randbytes(SIZE)

    def holds(self, seed):
        return self.bytes == random.Random(seed).randbytes(SIZE)


class Nixl:
    def __init__(self, name, memory):
        from nixl_cu12 import nixl_agent, nixl_agent_config

        self.memory = memory
        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        self.agent.register_memory([(memory.address, SIZE, 0, "")], "DRAM")

    def invitation(self):
        return self.agent.get_agent_metadata(), self.memory.address

    def accept(self, invitation):
        metadata, address = invitation
        self.peer = self.agent.add_remote_agent(metadata)
        self.here = self.agent.get_xfer_descs([(self.memory.address, SIZE, 0)], "DRAM")
        self.there = self.agent.get_xfer_descs([(address, SIZE, 0)], "DRAM")

    def move(self, operation):
        handle = self.agent.initialize_xfer(operation, self.here, self.there, self.peer)
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        assert state == "DONE", state

    def write(self):
        self.move("WRITE")

    def read(self):
        self.move("READ")


class Mooncake:
    def __init__(self, _, memory):
        from mooncake.engine import TransferEngine

        self.memory = memory
        self.engine = TransferEngine()
        assert self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0") == 0
        assert self.engine.register_memory(memory.address, SIZE) == 0

    def invitation(self):
        return f"127.0.0.1:{self.engine.get_rpc_port()}", self.memory.address

    def accept(self, invitation):
        self.peer, self.address = invitation

    def write(self):
        assert self.engine.transfer_sync_write(self.peer, self.memory.address, self.address, SIZE) == 0

    def read(self):
        assert self.engine.transfer_sync_read(self.peer, self.memory.address, self.address, SIZE) == 0


LIBRARIES = {"nixl": Nixl, "mooncake": Mooncake}


def own_memory(library, connection):
    """The second process: does as it is told until it is told to end."""
    memory = Memory()
    end = LIBRARIES[library]("owner", memory)
    connection.send(end.invitation())
    while (order := connection.recv()) is not None:
        action, seed = order
        connection.send(getattr(memory, action)(seed))


def ask(connection, action, seed):
    connection.send((action, seed))
    return connection.recv()


def exchange(end, connection):
    for seed in range(0, 2 * ROUNDS, 2):
        end.memory.fill(seed)
        end.write()
        assert ask(connection, "holds", seed), "what was written is not what was sent"
        ask(connection, "fill", seed + 1)
        end.read()
        assert end.memory.holds(seed + 1), "what was read is not what was there"


def packets_sent():
    """By the emulated device: a library that went to TCP without a word has sent none."""
    counter = ctypes.CDLL(None).softnic_counter
    counter.restype = ctypes.c_uint64
    return counter(b"packets_sent")


def main():
    library = sys.argv[1]
    processes = multiprocessing.get_context("spawn")
    connection, other = processes.Pipe()
    owner = processes.Process(target=own_memory, args=(library, other), daemon=True)
    owner.start()
    end = LIBRARIES[library]("mover", Memory())
    end.accept(connection.recv())
    exchange(end, connection)
    connection.send(None)
    owner.join(10)
    assert packets_sent() >= ROUNDS * SIZE / 4096, "not by the emulated device"
    print(f"ok   {library}: {ROUNDS} writes and reads of {SIZE} bytes, every one compared", flush=True)
    # NIXL 1.5.1 crashes in a destructor of the libnl-route that its wheel brings, also without softnic.
    os._exit(0)


if __name__ == "__main__":
    main()
