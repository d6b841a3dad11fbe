"""A program that nvcc made holds a cubin and PTX, both packed as the test wants it, so that running it shows
that the simulator unpacks what nvcc really writes.

usage: packing.py PROGRAM plain|lz4|zstd
"""
import struct
import sys

MAGIC = bytes.fromhex("50ed55ba")
KINDS = {1: "PTX", 2: "cubin"}


def entries(data):
    """(kind, packing) of each entry of each fat binary in a file."""
    at = data.find(MAGIC)
    while at >= 0:
        _, head, size = struct.unpack_from("<HHQ", data, at + 4)
        here, end = at + head, at + head + size
        while here < end:
            kind, _, head, size = struct.unpack_from("<HHIQ", data, here)
            flags, = struct.unpack_from("<Q", data, here + 40)
            yield KINDS.get(kind, kind), "zstd" if flags & 0x8000 else "lz4" if flags & 0x2000 else "plain"
            here += head + size
        at = data.find(MAGIC, at + 4)


with open(sys.argv[1], "rb") as f:
    found = sorted(entries(f.read()))
print(found)
sys.exit(found != [("PTX", sys.argv[2]), ("cubin", sys.argv[2])])
