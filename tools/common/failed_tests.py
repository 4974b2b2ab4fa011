"""failed_tests.py: says what failed in JUnit files written by ctest: python3 failed_tests.py FILE...

One block a failed test: the lines around the first assertions that did not hold, or the end of what it
printed when none is recognised. Short, because it ends a log of which often only the end is kept."""

import re
import sys
import xml.etree.ElementTree as ElementTree

ASSERTION = re.compile(r": Failure$|^(FAIL|ERROR): |^\w*(Error|Exception): "
                       r"|ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error: ")
LINES_AFTER = 7
LINES_IN_ALL = 32


def excerpt(output):
    lines = output.rstrip().splitlines()
    chosen = {number for start, line in enumerate(lines) if ASSERTION.search(line)
              for number in range(start, min(start + LINES_AFTER + 1, len(lines)))}
    if not chosen:
        return lines[-LINES_IN_ALL:]
    running = [None] * len(lines)  # the test case that a line of Google Test belongs to
    case = None
    for number, line in enumerate(lines):
        if line.startswith("[ RUN      ] "):
            case = line
        running[number] = case
    found = []
    named = None
    for number in sorted(chosen):
        if running[number] and running[number] != named:
            named = running[number]
            found.append(named)
        if lines[number] != named:
            found.append(lines[number])
    return found[:LINES_IN_ALL]


def failed_tests(path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            yield case.get("name"), case.findtext("system-out") or ""


def main(paths):
    for path in paths:
        try:
            failed = list(failed_tests(path))
        except (OSError, ElementTree.ParseError) as error:
            print(f"--- {path}: {error}")
            continue
        for name, output in failed:
            print(f"--- {name} ({path})")
            for line in excerpt(output):
                print(f"    {line[:300]}")


if __name__ == "__main__":
    main(sys.argv[1:])
