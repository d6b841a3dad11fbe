"""vmem plan --pack, as a person uses it. usage: test_cli.py VMEM"""
import csv
import pathlib
import subprocess
import sys
import tempfile

EXAMPLE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def pack(program, folder, *args):
    return subprocess.run([program, "plan", "--pack", f"{folder}/in.csv", *args], capture_output=True,
                          text=True, timeout=60)


def overlaps(rows):
    """Pairs of buffers that are live together and share bytes, found without any of our code."""
    n = [{k: int(v) if k != "id" else v for k, v in r.items()} for r in rows]
    return [(a["id"], b["id"]) for i, a in enumerate(n) for b in n[:i]
            if a["lower"] < b["upper"] and b["lower"] < a["upper"] and
            a["offset"] < b["offset"] + b["size"] and b["offset"] < a["offset"] + a["size"]]


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "in.csv")
        source.write_text(EXAMPLE)
        r = pack(program, folder, "--capacity", "12")
        rows = list(csv.DictReader(r.stdout.splitlines()))
        expect(r.returncode == 0 and len(rows) == 5, f"{r.returncode}: {r.stderr}")
        expect(not overlaps(rows), overlaps(rows))
        expect(max(int(x["offset"]) + int(x["size"]) for x in rows) == 12, rows)
        expect("5 buffers in 12 bytes" in r.stderr and "no packing is lower" in r.stderr, r.stderr)

        r = pack(program, folder, "--capacity", "11")
        expect(r.returncode == 1 and "impossible: at least 12 bytes" in r.stderr, r.stderr)
        expect(r.stdout == "" and r.stderr.count("\n") == 1, r)

        out = pathlib.Path(folder, "out.csv")
        r = pack(program, folder, "-o", str(out))
        expect(r.returncode == 0 and "5 buffers" in r.stdout, r)
        source.write_text(out.read_text())  # what it wrote it reads: every buffer has its place
        r = pack(program, folder)
        expect(r.returncode == 0 and r.stdout == out.read_text(), r)

        for text, reason in ((EXAMPLE + "b6,4,4,1\n", "in.csv:7: lower 4 is not below upper 4"),
                             ("", "the file is empty"), ("a,b\n", "no column 'id'")):
            source.write_text(text)
            r = pack(program, folder)
            expect(r.returncode == 1 and reason in r.stderr and r.stderr.count("\n") == 1, r.stderr)
        for args, reason in ((["--capacity", "much"], "not a size"), (["--time-limit", "-1"], "seconds"),
                             (["--colour", "1"], "unknown option"), (["--seed"], "needs a value")):
            r = pack(program, folder, *args)
            expect(r.returncode == 2 and reason in r.stderr, r.stderr)


if __name__ == "__main__":
    main()
