"""What requirements/*.lock pin, for tests that install a package of their own or look at what is installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
ENTRY = re.compile(r"^([\w.-]+)==([^\s;]+)(?: *; *([^\\\n]+))?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pin:
    """One entry: its marker is empty where it is for every Python and system."""

    name: NormalizedName
    version: Version
    marker: str


def pins(lock: str) -> list[Pin]:
    """The entries of `requirements/<lock>`, in its order: a package may have one for each of several Pythons."""
    text = (REQUIREMENTS / lock).read_text(encoding="utf-8")
    return [
        Pin(canonicalize_name(name), Version(version), marker.strip()) for name, version, marker in ENTRY.findall(text)
    ]


def pinned_here(lock: str) -> dict[NormalizedName, Version]:
    """The one version of each package that the lock has for this Python and system."""
    return {pin.name: pin.version for pin in pins(lock) if not pin.marker or Marker(pin.marker).evaluate()}


def constraints(folder: Path) -> Path:
    """A file for `pip install --constraint`: what is resolved by ranges then takes the versions of ci.lock."""
    file = folder / "constraints.txt"
    lines = (f"{pin.name}=={pin.version}{pin.marker and f' ; {pin.marker}'}\n" for pin in pins("ci.lock"))
    file.write_text("".join(lines), encoding="utf-8")
    return file
