"""The runner of ThreadSanitizer builds counts as failed what test_failing.c gets wrong, and nothing else.

usage: test_runner.py PROGRAM
"""
import subprocess
import sys

r = subprocess.run([sys.argv[1]], capture_output=True, text=True, timeout=100)
wanted = {f"wrong::{name}" for name in ("an_assertion", "an_expectation", "a_crash", "a_race")}
named = {l.split(": failed")[0] for l in r.stderr.splitlines() if ": failed with status" in l}
print(r.stderr, r.stdout)
sys.exit(not (r.returncode == 1 and named == wanted and r.stdout == "5 tests, 4 failures\n"))
