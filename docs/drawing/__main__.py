"""Writes the pictures: `python -m docs.drawing`."""

from __future__ import annotations

from docs.drawing.files import FOLDER, pictures


def main() -> None:
    """A picture that nobody draws any more goes."""
    FOLDER.mkdir(exist_ok=True)
    drawn = pictures()
    for path in FOLDER.glob("*.svg"):
        if path.name not in drawn:
            path.unlink()
    for name, picture in drawn.items():
        (FOLDER / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
