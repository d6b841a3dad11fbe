"""Reads X-macro tables (*.def): rows `MACRO(arg, arg, ...)` of C tokens and string literals."""
import re

TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([(),])|([^\s(),"]+)')


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def rows(path, macro):
    """Every row of `macro` in the file: a list of texts; adjacent string literals are joined and a
    bracketed argument is given as it stands."""
    with open(path, encoding="utf-8") as f:
        text = strip_comments(f.read())
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.M)
    out = []
    for m in re.finditer(r"\b" + macro + r"\(", text):
        out.append(arguments(text, m.end(), path))
    return out


def arguments(text, at, path):
    args, current, depth = [], "", 0
    while True:
        m = TOKEN.search(text, at)
        if not m:
            raise ValueError(f"{path}: a row does not end")
        at = m.end()
        literal, mark, word = m.groups()
        if mark == ")" and depth == 0:
            args.append(current)
            return args
        if mark == "," and depth == 0:
            args.append(current)
            current = ""
            continue
        if mark:
            depth += (mark == "(") - (mark == ")")
        if literal is not None:
            current += literal.replace('\\"', '"').replace("\\\\", "\\")
        elif mark or not current or current[-1] in "(*":
            current += mark or word
        else:
            current += " " + word
