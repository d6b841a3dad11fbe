"""Op logs of the DTR simulator (../shared/data/dtr) as trace files of ours.

CALL makes results: ALIAS -1 a new block that the call fills, else a view of that argument's block.
MUTATE writes the named arguments in place. COPY and COPY_FROM are references, RELEASE drops one; a
block is freed with its last. CONSTANTs exist before the first op. facts: docs/formats.md for the trace.
"""
import gzip
import json
import zlib


class _Log:
    def __init__(self):
        self.block, self.refs, self.lines, self.count = {}, {}, [], 0

    def new(self, name, size, before):
        self.count += 1
        b = self.count
        self.block[name], self.refs[b] = b, 1
        self.lines.append({"ev": "block" if before else "alloc", "id": b, "size": size})
        return b

    def share(self, name, other):
        b = self.block[other]
        self.refs[b] += 1
        self.block[name] = b

    def drop(self, name):
        b = self.block.pop(name, None)
        if b is None:
            return
        self.refs[b] -= 1
        if self.refs[b] == 0:
            self.lines.append({"ev": "free", "id": b})

    def op(self, name, args, ns, written=(), fresh=()):
        acc = [[self.block[a], "rw" if i in written else "r"] for i, a in enumerate(args)]
        acc += [[b, "wt"] for b in fresh]
        sig = zlib.crc32(f"{name} {len(args)} {self.count}".encode())
        self.lines.append({"ev": "op", "op": "launch", "sig": hex(sig), "acc": acc, "dur": ns})


def _results(log, entry, following):
    """Makes the results of a CALL; `following` are its MEMORY and ALIAS lines."""
    fresh = []
    for name, memory, alias in zip(entry["RESULT"], following[0::2], following[1::2]):
        target = int(alias["ALIAS"])
        size = int(memory["MEMORY"])
        if target >= 0:
            log.share(name, entry["ARGS"][target])
        elif size > 0:
            fresh.append(log.new(name, size, False))
        else:
            fresh.append(log.new(name, 1, False))
    return fresh


def convert(source, target):
    """Writes the log `source` (.gz) as the trace file `target`."""
    with gzip.open(source, "rt") as f:
        entries = [json.loads(line) for line in f]
    log, i = _Log(), 0
    while i < len(entries):
        e = entries[i]
        kind = e["INSTRUCTION"]
        i += 1
        if kind == "CONSTANT":
            log.new(e["NAME"], max(1, int(entries[i]["MEMORY"])), True)
            i += 1
        elif kind == "COPY":
            log.share(e["DST"], e["SRC"])
        elif kind == "COPY_FROM":
            log.drop(e["DST"])
            log.share(e["DST"], e["SRC"])
        elif kind == "RELEASE":
            log.drop(e["NAME"])
        elif kind == "MUTATE":
            log.op(e.get("NAME", "mutate"), e["ARGS"], int(e["TIME"]),
                   {int(m) for m in e["MUTATE"]})
        elif kind == "CALL":
            n = 2 * len(e["RESULT"])
            fresh = _results(log, e, entries[i:i + n])
            i += n
            log.op(e["NAME"], e["ARGS"], int(e["TIME"]), fresh=fresh)
    with open(target, "w", encoding="utf-8") as f:
        f.write(json.dumps({"format": "vmem-trace", "version": 1, "device": "imported op log",
                            "clock": "device", "machine": {}}) + "\n")
        f.writelines(json.dumps(line) + "\n" for line in log.lines)
