"""The kit's results as a table for docs/hardware.md."""
import math

COLUMNS = {
    "doctor": ["name", "result"],
    "measurements": ["name", "vmem", "min", "median", "p90", "max", "value", "unit"],
    "trainer_bits": ["net", "share", "budget_bytes", "planned", "out_bytes", "result"],
    "trainer_speed": ["policy", "ms", "slowdown", "planned", "out_bytes", "result"],
    "torch_bits": ["script", "share", "budget_bytes", "native_ms", "ms", "native_cpu_ms", "cpu_ms", "planned",
                   "out_bytes", "result"],
    "torch_speed": ["script", "batch", "way", "ms", "slowdown", "cpu_ms", "peak_bytes", "result"],
    "torch_batch": ["script", "memory_bytes", "way", "largest_batch", "gain", "result"],
}


def cell(value):
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def markdown(results):
    """The whole text."""
    facts = results["facts"]
    lines = [f"### {facts['card']}, {results['date']}" + (" (simulated)" if results["simulated"] else ""), "",
             "; ".join(f"{k} {v}" for k, v in facts.items() if k != "card") + f"; libvmem {results['commit']}", ""]
    lines += [f"- missing: {m}" for m in results["missing"]] + ([""] if results["missing"] else [])
    for step in results["steps"]:
        columns = [c for c in COLUMNS[step["name"]] if any(c in r for r in step["rows"])]
        lines += [f"**{step['name']}**: {step['what']} ({step['seconds']:.0f} s, {step['state']})", ""]
        if columns:
            lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            lines += ["| " + " | ".join(cell(r.get(c)) for c in columns) + " |" for r in step["rows"]]
            lines.append("")
    return "\n".join(lines)
