"""program_module.py: a Python program of the project as a module, for tests of its parts."""

import importlib.machinery
import importlib.util


def load_program(path):
    """Runs the program's definitions, and not its main(). Its name need not end with .py."""
    loader = importlib.machinery.SourceFileLoader("program", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("program", loader))
    loader.exec_module(module)
    return module
