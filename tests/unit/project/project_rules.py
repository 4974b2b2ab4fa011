"""project_rules.py: the written rules of the source tree, as code.

check(root) returns one line for every violation: who may include whom, among layers and among the rooms of
a layer, how long a file may be, that it says what it is, and words that have no place in finished work.
"""

import os
import re
import sys

# Layer (a folder) -> folders whose headers its files may include, besides its own.
# The version of clang-format and clang-tidy: others write and find other things.
CLANG_VERSION = 14

LAYERS = {
    "base": [],
    "transports": ["base"],
    "collectives": ["base", "transports"],
    "ipc": ["base", "collectives"],
    "daemon": ["base", "transports", "collectives", "ipc"],
    "libclient": ["base", "transports", "collectives", "ipc", "hdt"],
    "training": ["base", "hdt"],
    "bench": ["base", "hdt"],
    "tools": ["base", "hdt"],
    "bindings": ["hdt"],
}

# Rooms: the folders of a layer, in rows, lowest first. A room includes itself and the rooms of rows before
# its own: rooms of one row do not know each other. "" is what lies in the layer's folder itself.
ROOMS = {
    "transports": [
        ["secure"],
        [""],
        ["net", "support"],
        ["tcp", "rdma", "tagged", "fake", "link"],
        ["ofi", "ucx", "loader"],
        ["benchmark"],
    ],
    "libclient": [
        ["include", "common", "launch"],
        ["daemon_client"],
        ["intranode", "internode"],
        ["group"],
        ["api"],
    ],
    "training": [
        ["numbers"],
        ["checkpoint", "data", "engine"],
        ["plan", "torch", "api"],
    ],
    "training/plan": [
        ["include", "describe"],
        ["predict"],
        ["search", "validate"],
        ["output"],
        ["convert"],
        [""],
    ],
    "daemon": [
        ["protocol", "sessions"],
        ["links"],
        ["group"],
        ["classes"],
        ["engine", "membership"],
        ["diagnosis"],
        ["control"],
        [""],
    ],
}

# Single headers and folders allowed beyond that: (who, what).
EXCEPTIONS = [
    # libhdt starts a daemon inside the process through this one header.
    ("libclient/", "daemon/embedded.h"),
    # The daemon's program starts the daemon; the other end of its session protocol is the client library's.
    ("tools/hdtcommd/", "daemon/daemon.h"),
    ("tools/hdtctl/", "libclient/daemon_client/session.h"),
    ("tools/hdtctl/", "libclient/daemon_client/daemon_finder.h"),
    # The conformance suite as a program.
    ("tools/hdt-backend-test/", "transports/"),
    # Google Benchmark of the reduction kernels, which no public header shows.
    ("bench/kernels/", "collectives/kernels.h"),
    # The predictor times the collectives' schedules by their own cost model.
    ("training/plan/", "collectives/cost_model.h"),
    # The programs of the training layer.
    ("tools/hdt-train/", "training/"),
    ("tools/hdt-data/", "training/data/"),
    ("tools/hdt-plan/", "training/plan/"),
    ("tools/hdt-plan/", "training/data/plot.h"),
]

# Where torch's headers may be seen.
TORCH_FOLDERS = ["training/torch", "tools/hdt-train/", "tests/training/", "bindings/torch/"]
TORCH_HEADER = re.compile(r"^(torch|ATen|c10)/")

# The file that describes the configuration's keys, and how it names the field of one.
CONFIGURATION = "base/config"
CONFIGURATION_KEYS = "base/config_keys.cc"
CONFIGURATION_FIELD = re.compile(r"HDT_FIELD\([^;]*?, (\w+\.\w+)\)")

PUBLIC_HEADERS = {"hdt/hdt.h", "hdt/hdt.hpp", "hdt/buffer.hpp", "hdt/plan.hpp", "hdt/train.h"}
# The C interface, its functions, and the headers that together have each of them in C++.
C_INTERFACE = "libclient/include/hdt/hdt.h"
C_FUNCTION = re.compile(r"^HDT_API[\w\s*]*?\b(hdt\w+)\(", re.MULTILINE)
CPP_INTERFACE = ["libclient/include/hdt/hdt.hpp", "libclient/include/hdt/buffer.hpp"]
CPP_COMMENT = re.compile(r"//[^\n]*")
MAX_LINES = 500
MAX_COLUMNS = 110
# Text in the program's own words, such as --help, or another program's: its lines are what they are.
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
CPP = re.compile(r"\.(h|hpp|cc|c)$")
# Other files whose lines are limited, besides scripts, which are known by their first line.
NARROW = re.compile(r"(\.(py|sh|cmake|service|conf|supp)|(^|/)(CMakeLists\.txt|CMakePresets\.json))$")
# Pages, but for those that programs print. Not prose: code, in a fence or indented, and rows of a table.
PAGE = re.compile(r"^(?!docs/reference/).*\.md$")
NO_PROSE = re.compile(r"^```.*?^```|^    [^\n]*|^\|[^\n]*", re.DOTALL | re.MULTILINE)
URL = re.compile(r"https?://\S{60,}")
SOURCE = re.compile(r"\.(h|hpp|cc|c|py)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
# Written so that this file does not hold the words it looks for.
FORBIDDEN = re.compile(r"\b(%s)\b" % "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]))
TOP_FOLDERS = list(LAYERS) + ["tests", "cmake", ".ci", ".githooks", "dist", "docs"]


def files_of(root):
    """Every file of the project, as a path relative to its root."""
    found = [entry.name for entry in os.scandir(root) if entry.is_file() and entry.name != ".git"]
    for top in TOP_FOLDERS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [f for f in folders if f not in ("__pycache__", "build")]
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def rooms_of(path):
    """{layer: room} of a file, for each folder of ROOMS that it is in."""
    rooms = {}
    for layer in ROOMS:
        if path.startswith(layer + "/"):
            inside = path[len(layer) + 1:]
            rooms[layer] = inside.split("/")[0] if "/" in inside else ""
    return rooms


def rooms_seen(layer, room):
    """The rooms of the layer whose headers a room may include; nothing: there is no such room."""
    seen = {room}
    for row in ROOMS[layer]:
        if room in row:
            return seen
        seen.update(row)
    return None


def room_violations(path, text):
    for layer, room in rooms_of(path).items():
        seen = rooms_seen(layer, room)
        if seen is None:
            yield f"{path}: is in no room of {layer}; ROOMS has them"
            continue
        for header in INCLUDE.findall(text):
            other = rooms_of(header).get(layer, room)
            if other not in seen:
                names = ", ".join(sorted(f"{layer}/{name}".rstrip("/") for name in seen))
                yield f"{path}: includes {header}; {layer}/{room} may include only {names}"


def is_script(path, text):
    return text.startswith("#!")


def include_violations(path, text):
    layer = path.split("/")[0]
    for header in INCLUDE.findall(text):
        if TORCH_HEADER.match(header):
            if not any(path.startswith(folder) for folder in TORCH_FOLDERS):
                yield f"{path}: includes <{header}>; torch is only for {', '.join(TORCH_FOLDERS)}"
            continue
        target = header.split("/")[0]
        if layer not in LAYERS or (target not in LAYERS and target != "hdt"):
            continue
        if any(path.startswith(who) and header.startswith(what) for who, what in EXCEPTIONS):
            continue
        allowed = [layer] + LAYERS[layer]
        if target not in allowed:
            yield f"{path}: includes {header}; {layer} may include only {', '.join(allowed)}"
        elif target == "hdt" and header not in PUBLIC_HEADERS:
            yield f"{path}: includes {header}; the public headers are {', '.join(sorted(PUBLIC_HEADERS))}"
        elif (layer == "tools" and target == "tools"
              and header.split("/")[1] not in (path.split("/")[1], "common")):
            yield f"{path}: includes {header}; a tool sees its own folder only"


def comment_violations(path, text):
    """A header says what it is; a comment that names its file names the right one."""
    body = text.split("\n", 1)[1] if is_script(path, text) and "\n" in text else text
    begin = body.lstrip()
    starts = begin.startswith(("//", "/*", "#", '"""')) and not begin.startswith(("#include", "#pragma"))
    if (path.endswith((".h", ".hpp", ".py")) or is_script(path, text)) and not starts:
        yield f"{path}: does not start with a comment that says what it is"
    named = re.match(r'(?://|/\*|#|""")\s*([\w.-]+\.(?:h|hpp|cc|c|py|sh)):', body.lstrip())
    if named and named.group(1) != os.path.basename(path):
        yield f"{path}: its first comment says it is {named.group(1)}"


def length_violations(path, text):
    """No line is wider than MAX_COLUMNS, but for raw strings of C++, addresses that cannot be broken, and
    tables and code in pages."""
    if CPP.search(path):
        text = RAW_STRING.sub(lambda raw: '""' + "\n" * raw.group(0).count("\n"), text)
    if PAGE.search(path):
        text = NO_PROSE.sub(lambda part: "\n" * part.group(0).count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_COLUMNS and not URL.search(line):
            yield f"{path}:{number}: {len(line)} columns; expected at most {MAX_COLUMNS}"


def configuration_violations(texts):
    """Every key of the configuration is read by something: `section.field` is written outside of its own
    description."""
    readers = "\n".join(text for path, text in texts.items()
                        if SOURCE.search(path) and path.split("/")[0] in LAYERS
                        and not path.startswith(CONFIGURATION))
    for field in CONFIGURATION_FIELD.findall(texts.get(CONFIGURATION_KEYS, "")):
        if not re.search(rf"\b{re.escape(field)}\b", readers):
            yield f"{CONFIGURATION_KEYS}: nothing reads {field}"


def interface_violations(texts):
    """Every function of hdt.h is called in the C++ headers: a new one is to have a form there."""
    calls = "\n".join(CPP_COMMENT.sub("", texts.get(path, "")) for path in CPP_INTERFACE)
    for function in C_FUNCTION.findall(texts.get(C_INTERFACE, "")):
        if not re.search(rf"\b{function}\b", calls):
            yield f"{C_INTERFACE}: {function} is in none of {', '.join(CPP_INTERFACE)}"


def check(root):
    violations = []
    texts = {}
    for path in files_of(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            text = file.read()
        if FORBIDDEN.search(text):
            violations.append(f"{path}: holds '{FORBIDDEN.search(text).group(0)}'")
        lines = text.count("\n")
        source = bool(SOURCE.search(path)) or is_script(path, text)
        if source and lines >= MAX_LINES:
            violations.append(f"{path}: {lines} lines; expected fewer than {MAX_LINES}")
        if source:
            violations += comment_violations(path, text)
        if CPP.search(path) or NARROW.search(path) or PAGE.search(path) or is_script(path, text):
            violations += length_violations(path, text)
        if CPP.search(path):
            violations += include_violations(path, text)
            violations += room_violations(path, text)
        texts[path] = text
    return violations + list(configuration_violations(texts)) + list(interface_violations(texts))


if __name__ == "__main__":
    if sys.argv[1] == "--clang-version":
        print(CLANG_VERSION)
        sys.exit()
    found = check(sys.argv[1])
    for line in found:
        print(line)
    sys.exit(1 if found else 0)
