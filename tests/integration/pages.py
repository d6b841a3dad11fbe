#!/usr/bin/env python3
"""The generated pages of docs/ say what the tables say (`ninja pages` makes them current)."""
import pathlib
import subprocess
import sys
import tempfile

from vmtest import ROOT, check, finish, planted

sys.path.insert(0, str(ROOT / "tools"))
from gen_pages import PAGES  # noqa: E402


def problems(script, table, page):
    r = subprocess.run([sys.executable, ROOT / "tools" / script, "--check", ROOT / table, page],
                       capture_output=True, text=True)
    return r.stderr.strip() if r.returncode else ""


for script, table, page in PAGES:
    found = problems(script, table, ROOT / page)
    check(not found, found)
    with tempfile.TemporaryDirectory() as d:
        stale = pathlib.Path(d) / "page.md"
        stale.write_text((ROOT / page).read_text().replace("|", "!", 1))
        planted(f"a stale {page}", problems(script, table, stale))
        planted(f"no {page}", problems(script, table, pathlib.Path(d) / "absent.md"))
finish()
