"""A compose file, read as Docker Compose reads it, as far as ours goes. What it does not know is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

Condition = Literal["service_healthy", "service_completed_successfully"]

_KEYS = {
    "build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "group_add", "healthcheck", "image",
    "network_mode", "ports", "profiles", "read_only", "restart", "secrets", "security_opt", "stop_grace_period",
    "tmpfs", "user", "volumes",
}  # fmt: skip
_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::\?(?P<missing>[^}]*))?\})")
STOP_SECONDS = 10.0


class NotUnderstood(Exception):
    """The file, or a command, says something that this translator does not know."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """One service. Lists that the file leaves out are None where the image's stand in their place."""

    name: str
    image: str
    is_built: bool
    entrypoint: list[str] | None
    command: list[str] | None
    environment: dict[str, str]
    #: Name of a secret -> its file.
    secrets: dict[str, Path]
    #: (source, target, is read-only); a source that is no path is the name of a volume.
    volumes: list[tuple[Path | str, str, bool]]
    depends_on: dict[str, Condition]
    #: Words of the program; [] is none, None that of the image.
    health: list[str] | None
    user: str | None
    groups: list[str]
    #: (address, port, port of the container).
    ports: list[tuple[str, int, int]]
    profiles: list[str]
    restart: str
    is_read_only: bool
    drops_capabilities: bool
    is_alone: bool
    stop_seconds: float


@dataclass(frozen=True, kw_only=True)
class Project:
    """All services of a file."""

    folder: Path
    services: dict[str, Service]
    volumes: list[str]

    def without_profile(self) -> list[Service]:
        """Those that `up` starts."""
        return [service for service in self.services.values() if not service.profiles]

    def is_awaited_to_the_end(self, name: str) -> bool:
        """Whether another service waits for this one's success, so that `up --wait` does so, too."""
        wanted = [service.depends_on.get(name) for service in self.services.values()]
        return "service_completed_successfully" in wanted


def read_project(folder: Path) -> Project:
    """`compose.yml` of the folder, with the variables of `.env`."""
    lines = (folder / ".env").read_text().splitlines() if (folder / ".env").exists() else []
    variables = dict(line.split("=", 1) for line in lines if line)
    document = _filled(yaml.safe_load((folder / "compose.yml").read_text(encoding="utf-8")), variables)
    secrets = {name: folder / place["file"] for name, place in document["secrets"].items()}
    services = {
        name: _service(name, entry, folder=folder, secrets=secrets) for name, entry in document["services"].items()
    }
    return Project(folder=folder, services=services, volumes=list(document["volumes"]))


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """The document with `${NAME:?message}` replaced and `$$` halved."""
    if isinstance(value, dict):
        return {key: _filled(entry, variables) for key, entry in value.items()}
    if isinstance(value, list):
        return [_filled(entry, variables) for entry in value]
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        if found["name"] not in variables:
            raise NotUnderstood(f"{found['name']}: {found['missing']}")
        return variables[found["name"]]

    return _VARIABLE.sub(one, value)


def _service(name: str, entry: dict[str, Any], *, folder: Path, secrets: Mapping[str, Path]) -> Service:
    unknown = entry.keys() - _KEYS
    if unknown:
        raise NotUnderstood(f"{name}: {', '.join(sorted(unknown))}")
    return Service(
        name=name,
        image=entry["image"],
        is_built="build" in entry,
        entrypoint=entry.get("entrypoint"),
        command=entry.get("command"),
        environment=entry.get("environment", {}),
        secrets={secret: secrets[secret] for secret in entry.get("secrets", ())},
        volumes=[_volume(text, folder) for text in entry.get("volumes", ())],
        depends_on={other: wanted["condition"] for other, wanted in entry.get("depends_on", {}).items()},
        health=_health(name, entry.get("healthcheck")),
        user=entry.get("user"),
        groups=entry.get("group_add", []),
        ports=[_port(text) for text in entry.get("ports", ())],
        profiles=entry.get("profiles", []),
        restart=entry.get("restart", "no"),
        is_read_only=entry.get("read_only", False),
        drops_capabilities=entry.get("cap_drop") == ["ALL"],
        is_alone=entry.get("network_mode") == "none",
        stop_seconds=float(str(entry.get("stop_grace_period", STOP_SECONDS)).removesuffix("s")),
    )


def _volume(text: str, folder: Path) -> tuple[Path | str, str, bool]:
    source, target, *mode = text.split(":")
    place = (folder / source).resolve() if source.startswith(".") else source
    if isinstance(place, Path) and not place.exists():
        raise NotUnderstood(f"{text}: Docker would make an empty folder of it")
    return place, target, mode == ["ro"]


def _port(text: str) -> tuple[str, int, int]:
    address, outer, inner = text.split(":")
    return address, int(outer), int(inner)


def _health(name: str, check: Mapping[str, Any] | None) -> list[str] | None:
    if check is None:
        return None
    if check.get("disable"):
        return []
    kind, *words = map(str, check["test"])
    if kind != "CMD":
        raise NotUnderstood(f"{name}: a health check of the kind {kind}")
    return words
