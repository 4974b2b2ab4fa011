"""__init__.py: the parts of bench/compare."""
