"""doc_blocks.py: the fenced blocks of a documentation page that tests use.

A line <!-- runnable --> before a block says that a test runs it with bash; <!-- file: NAME --> says that the
block is the contents of file NAME, which runnable blocks further down find in their current folder.
"""

import os
import re

MARK = re.compile(r"^<!-- (?:(runnable)|file: ([\w.-]+)) -->\n```[\w+-]*\n(.*?)^```$",
                  re.MULTILINE | re.DOTALL)


def blocks(page):
    """(file name or None if runnable, text, line number) of each marked block, in order."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    marks = len(re.findall(r"^<!-- (?:runnable|file:)", text, re.MULTILINE))
    found = [(m.group(2), m.group(3), text.count("\n", 0, m.start(3))) for m in MARK.finditer(text)]
    if len(found) != marks:
        raise ValueError(f"{page}: {marks} marks but {len(found)} marked blocks; a block must follow its "
                         f"mark at once")
    return found


def file_block(page, name):
    """The contents of the one block marked as file `name`."""
    texts = [text for file, text, _ in blocks(page) if file == name]
    if len(texts) != 1:
        raise ValueError(f"{page}: {len(texts)} blocks marked as file {name}")
    return texts[0]


def pages(root):
    """README.md, CONTRIBUTING.md and every page under docs/."""
    found = [os.path.join(root, name) for name in ("README.md", "CONTRIBUTING.md")]
    for folder, _, names in os.walk(os.path.join(root, "docs")):
        found += [os.path.join(folder, name) for name in names if name.endswith(".md")]
    return sorted(found)
