#!/usr/bin/env python3
"""Makes every generated page of docs/ current: gen_pages.py (no arguments; also `ninja pages`)."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# script, table, page
PAGES = [
    ("gen_knobs.py", "shim/knobs.def", "docs/knobs.md"),
    ("gen_messages.py", "shim/messages.def", "docs/messages.md"),
    ("gen_hooks.py", "cuda_hooks/hooks.def", "docs/hooks.md"),
]

if __name__ == "__main__":
    for script, table, page in PAGES:
        subprocess.run([sys.executable, ROOT / "tools" / script, ROOT / table, ROOT / page], check=True)
