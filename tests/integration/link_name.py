#!/usr/bin/env python3
"""link_name.py FILE NAME FOLDER: makes FOLDER with a link NAME to FILE."""
import os
import sys

target, name, folder = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, name)
if os.path.lexists(path):
    os.remove(path)
os.symlink(os.path.abspath(target), path)
