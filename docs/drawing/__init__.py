"""Pictures of docs/explanation/, written as SVG from values: `python -m docs.drawing`. A test compares them with the files.

Each is 384 wide, so that it can be read on a telephone, and has text that can be selected, in two languages. Colours
follow the reader's theme; the paper is drawn, so that a page of another theme does not swallow the ink.
"""
