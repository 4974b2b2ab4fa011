"""Bandwidth of HDT's backends beside the tools that people measure the same libraries with."""
