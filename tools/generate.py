"""What the page generators (gen_*.py) have in common: write the page, or check that it is current."""
import os
import sys


def main(usage, page):
    args = sys.argv[1:]
    check = args[:1] == ["--check"]
    if check:
        args = args[1:]
    if len(args) != 2:
        sys.exit(usage)
    source, target = args
    text = page(source)
    if not check:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with open(target, "w", encoding="utf-8") as f:
            f.write(text)
        return
    try:
        with open(target, encoding="utf-8") as f:
            current = f.read()
    except FileNotFoundError:
        current = None
    if current != text:
        sys.exit(f"{target} is not what {source} says: run {os.path.basename(sys.argv[0])} {source} {target}")
