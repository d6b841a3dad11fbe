"""What every benchmark shares: folders, running programs on the simulated GPU, the result file."""
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("VMEM_BUILD_DIR", "build")
DATA = pathlib.Path(os.environ.get("VMEM_SHARED_DATA", ROOT / ".." / "shared" / "data")).resolve()


def require_data(*names):
    """The paths of shared data files; ends with exit status 77 (skipped) where one is absent."""
    paths = [DATA / n for n in names]
    for p in paths:
        if not p.exists():
            print(f"skipped: {p} is absent (set VMEM_SHARED_DATA)")
            sys.exit(77)
    return paths


def median(values):
    return statistics.median(values) if values else float("nan")


def sim_env(preset, mode="timing", preload=False, **extra):
    """Environment in which a program finds the simulated GPU; preload adds libvmem.so."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VMEM_", "SIMGPU_"))}
    libs = [str(BUILD / "tests" / "simgpu" / d) for d in ("driver", "runtime", "dnn", "blas")]
    env["LD_LIBRARY_PATH"] = ":".join(libs + [env.get("LD_LIBRARY_PATH", "")]).rstrip(":")
    env["SIMGPU_PRESET"] = preset
    env["SIMGPU_MODE"] = mode
    if preload:
        env["LD_PRELOAD"] = str(BUILD / "cuda_hooks" / "libvmem.so")
        env["VMEM_LIBCUDA"] = str(BUILD / "tests" / "simgpu" / "driver" / "libcuda.so.1")
    env.update({k: str(v) for k, v in extra.items() if v is not None})
    return env


def run(cmd, env, timeout=600):
    return subprocess.run([str(c) for c in cmd], env=env, capture_output=True, text=True,
                          timeout=timeout, errors="replace")


def write(name, rows, figures, simulated=True):
    """Writes build/bench/NAME.json beside its final name and renames it."""
    out = BUILD / "bench" / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    tmp = out.with_suffix(".tmp")
    tmp.write_text(json.dumps({"bench": name, "simulated": simulated, "rows": rows,
                               "figures": figures}, indent=1) + "\n")
    tmp.rename(out)
    print("figures: " + ", ".join(f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}"
                                  for k, v in figures.items()))
    print(f"wrote {out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}")


def table(rows, columns):
    """Prints rows (dicts) as a plain table; columns = [(key, title, format)]."""
    cells = [[t for _, t, _ in columns]]
    for r in rows:
        cells.append([f"{r[k]:{f}}" if k in r and r[k] is not None and not isinstance(r[k], str)
                      else str(r.get(k, "")) for k, _, f in columns])
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(c.rjust(w) for c, w in zip(row, widths)))
