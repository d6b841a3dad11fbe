#!/usr/bin/env python3
"""Makes docs/knobs.md from shim/knobs.def.

    gen_knobs.py KNOBS_DEF PAGE           writes the page
    gen_knobs.py --check KNOBS_DEF PAGE   fails when the page is not what would be written
"""
import generate
import xmacro

VALUES = {
    "FLAG": "0 or 1",
    "COUNT": "whole number",
    "BYTES": "size",
    "AMOUNT": "size, percentage or `auto`",
    "TEXT": "text",
}

HEAD = """# Knobs

<!-- Generated from shim/knobs.def by tools/gen_knobs.py: change the table there. -->

libvmem reads these environment variables once, at the program's first CUDA call. An unset or empty
variable means its default. A bad value is reported in one line and its default is used; a name that
starts with `VMEM_` and is not listed here is reported with the nearest name that is. `vmem run` has an
option for each, and `vmem doctor` prints the values in force.

Sizes are bytes, or a number with K, M, G or T (also KiB, MiB, GiB, TiB): powers of 1024, fractions
allowed (`1.5GiB`).

| Variable | Value | Default | What it does | Since |
|---|---|---|---|---|
"""


def page(path):
    out = HEAD
    for _, name, kind, default, allowed, unit, doc, since in xmacro.rows(path, "VM_KNOB"):
        value = VALUES.get(kind) or "one of " + ", ".join(f"`{c}`" for c in allowed.split("|"))
        if kind in ("COUNT", "BYTES") and allowed:
            value += ", " + allowed.replace("..", " to ")
        if unit and kind != "BYTES":
            value += f" ({unit})"
        default = f"`{default}`" if default else "unset"
        out += f"| `{name}` | {value} | {default} | {doc} | {since} |\n"
    return out


if __name__ == "__main__":
    generate.main(__doc__, page)
