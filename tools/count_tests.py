#!/usr/bin/env python3
"""Counts meson test results: the plain last line that test.sh and CI end with."""
import json
import sys

passed = failed = skipped = 0
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)["result"]
            if r in ("OK", "EXPECTEDFAIL"):
                passed += 1
            elif r == "SKIP":
                skipped += 1
            else:
                failed += 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
