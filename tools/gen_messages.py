#!/usr/bin/env python3
"""Makes docs/messages.md from shim/messages.def.

    gen_messages.py MESSAGES_DEF PAGE           writes the page
    gen_messages.py --check MESSAGES_DEF PAGE   fails when the page is not what would be written
"""
import re
import sys

import generate
import xmacro

HEAD = """# Messages

<!-- Generated from shim/messages.def by tools/gen_messages.py: change the table there. -->

Each line that libvmem writes has the form `libvmem[PID] LEVEL NUMBER: text`. Numbers never change
their meaning. `VMEM_LOG` sets the least severity that is written, `VMEM_LOG_FILE` where to.

| Number | Level | Line | What it means and the way out |
|---|---|---|---|
"""


def page(path):
    rows = xmacro.rows(path, "VM_MSG")
    numbers = [int(r[1]) for r in rows]
    for n in numbers:
        if numbers.count(n) > 1:
            sys.exit(f"gen_messages.py: {path} has more than one message {n:03d}")
    out = HEAD
    for _, number, level, _, text, meaning in sorted(rows, key=lambda r: int(r[1])):
        text = re.sub(r"%0?\d*(?:ll|l|z)?[sduxpc]", "…", text).replace("|", "\\|")
        out += f"| {int(number):03d} | {level.lower()} | {text} | {meaning} |\n"
    return out


if __name__ == "__main__":
    generate.main(__doc__, page)
