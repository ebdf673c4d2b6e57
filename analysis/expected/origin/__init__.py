"""How one class of one stage came about, line by line, to the byte."""

from analysis.expected.origin.formulas import meanings
from analysis.expected.origin.lines import Line
from analysis.expected.origin.of_class import Origin, class_origin

__all__ = ["Line", "Origin", "class_origin", "meanings"]
