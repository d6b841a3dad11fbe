#!/usr/bin/env python3
"""Reads the toolkit's headers and hooks.def; writes what libvmem.so's exports are built from.

    gen_symbols.py INCLUDE_DIR HOOKS_DEF OUT_DIR

OUT_DIR/trampolines.inc   VM_TRAMP(name, index): every driver symbol that is not hooked, sorted
OUT_DIR/vm_names.h        cuda.h with its renaming macros taken away again
OUT_DIR/libvmem.map       the export list
"""
import os
import re
import sys

# Where the driver's entry points are declared. Absent ones (a slim toolkit) are skipped.
HEADERS = ["cuda.h", "cudaEGL.h", "cudaGL.h", "cudaVDPAU.h", "cudaProfiler.h"]

DECLARED = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
RENAMED = re.compile(r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(.+?)\s*(?:/\*.*)?$", re.M)
TWINNED = re.compile(r"__CUDA_API_(PTDS|PTSZ)\s*\(\s*(\w+)\s*\)")
ROW = re.compile(r"^VM_HOOK\((\w+), (\w+),|^VM_PAIR\((\w+), (\w+), (_\w+),", re.M)


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def read(include_dir):
    """All driver symbols that the headers name, and the names that cuda.h redefines."""
    names, macros = set(), set()
    for header in HEADERS:
        path = os.path.join(include_dir, header)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as f:
            text = strip_comments(f.read())
        names.update(DECLARED.findall(text))
        for name, target in RENAMED.findall(text):
            twin = TWINNED.match(target)
            if twin:
                names.update((twin.group(2), twin.group(2) + "_" + twin.group(1).lower()))
            elif re.fullmatch(r"cu[A-Z]\w*", target):
                names.add(target)
            else:
                continue
            if header == "cuda.h":
                macros.add(name)
    return names, macros


def hooked(path):
    """Symbols of hooks.def, in order."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    out = []
    for m in ROW.finditer(text):
        if m.group(2):
            out.append(m.group(2))
        else:
            out += [m.group(4), m.group(4) + m.group(5)]
    return out


def write(out_dir, name, text):
    path = os.path.join(out_dir, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main(argv):
    if len(argv) != 4:
        sys.exit(__doc__)
    include_dir, hooks_def, out_dir = argv[1:]
    names, macros = read(include_dir)
    hooks = hooked(hooks_def)
    if len(names) < 300 or len(hooks) < 50:
        sys.exit(f"gen_symbols.py: {include_dir} names {len(names)} driver functions and {hooks_def} "
                 f"hooks {len(hooks)}: this is not a CUDA toolkit's include folder")
    doubled = sorted({h for h in hooks if hooks.count(h) > 1})
    if doubled:
        sys.exit(f"gen_symbols.py: {hooks_def} has more than one row for {', '.join(doubled)}")
    # The per-thread form of cuGetProcAddress is an inline function of cuda.h, not a symbol.
    jumps = sorted(n for n in names - set(hooks) if not n.startswith("cuGetProcAddress"))

    os.makedirs(out_dir, exist_ok=True)
    write(out_dir, "trampolines.inc",
          "".join(f"VM_TRAMP({name}, {i})\n" for i, name in enumerate(jumps)))
    write(out_dir, "vm_names.h",
          "/* cuda.h, and every name means the exported symbol of that name. */\n"
          "#ifndef VM_NAMES_H\n#define VM_NAMES_H\n#include <cuda.h>\n"
          + "".join(f"#undef {m}\n" for m in sorted(macros)) + "#endif\n")
    exports = sorted(set(jumps) | set(hooks))
    write(out_dir, "libvmem.map",
          "{\n  global:\n" + "".join(f"    {n};\n" for n in exports)
          + "    cudnn[A-Z]*;\n    cublas[A-Z]*;\n    cupti[A-Z]*;\n    vmem_*;\n  local:\n    *;\n};\n")


if __name__ == "__main__":
    main(sys.argv)
