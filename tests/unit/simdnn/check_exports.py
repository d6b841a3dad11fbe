"""The simulated libraries export every function of their headers, with the real symbol versions.

usage: check_exports.py LIBRARY VERSION PREFIX REAL_LIBRARY HEADER...

REAL_LIBRARY is compared with too where it is installed: what it has and we lack must be undocumented.
"""
import os
import re
import subprocess
import sys


def exported(path):
    """Names and versions of the functions that a library defines."""
    lines = subprocess.run(["nm", "-D", "--with-symbol-versions", "--defined-only", path],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(re.split("@@?", line.split()[-1] + "@")[:2] for line in lines if line.split()[1] in "TWi")


def main():
    library, version, prefix, real, *headers = sys.argv[1:]
    ours = exported(library)
    text = "".join(open(h, errors="replace").read() for h in headers)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    declared = set(re.findall(r"(?:WINAPI|\n)\s*(" + prefix + r"\w+)\s*\([^;{]*\)\s*;", text))
    bad = [f"{n} is declared and not exported" for n in sorted(declared - set(ours))]
    bad += [f"{n} has version {v!r}" for n, v in sorted(ours.items()) if v != version]
    bad += [f"{n} is not of this library" for n in sorted(ours) if not n.startswith(prefix)]
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    bad += [f"needs {n}" for n in re.findall(r"NEEDED.*\[(lib(?:cuda|cudart|cudnn|cublas)\S*)\]", needed)]
    if len(declared) < 40:
        bad.append(f"only {len(declared)} declarations were found in the headers")
    if os.path.exists(real):
        internal = re.compile("Backdoor|EnvironmentMode|bdmm$|Internal$|cublasLt[A-Z]{3}Matmul|LegacyGemm|_for_cublas_|"
                              "Characteristic|NvjetCache|CtxInit$|ShutdownCtx$|HeuristicLut|"
                              "HeuristicsCache(Create|Destroy|Get|Put)$|AttributeRange$")
        bad += [f"{n} is in the real library" for n in sorted(set(exported(real)) - set(ours))
                if n.startswith(prefix) and not internal.search(n)]
    print("\n".join(bad) or f"{len(declared)} declared, {len(ours)} exported with version {version}")
    sys.exit(1 if bad else 0)


main()
