"""`docker compose ...`, without an engine: the commands that try-with-compose.md and try-an-alert.md use, no others.

    build; up --detach --wait; run --rm [--no-deps] [--env A=B] SERVICE [WORD]...; exec SERVICE WORD...; logs SERVICE;
    ps; stop [SERVICE]...; start SERVICE...; down [--volumes]

It is the program `docker` of a machine (tests/compose/machine.py), and works on the compose.yml of its folder. Services
start in the order of depends_on, their health checks run as they stand. `up` starts a container again as its `restart`
says; after `up` has ended nothing does. The standard input of `run` is the file that the variable TYPED names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.compose.containers import Containers, Started
from tests.compose.images import ROOT, Image, image_of
from tests.compose.project import NotUnderstood, Project, Service, read_project

PAUSE_SECONDS = 0.5
#: A health check of this machine answers in less.
HEALTH_SECONDS = 20.0
#: How often `up` starts a container again before it says that it does not come up.
STARTS_MAX = 8


@dataclass(kw_only=True)
class Coming:
    """A container that `up` waits for."""

    service: Service
    image: Image
    started: Started
    starts: int = 1
    #: Reached: it answers its health check, or has ended with 0 where that is awaited.
    conditions: set[str] = field(default_factory=set)


class Compose:
    """The commands."""

    def __init__(self, project: Project, state: Path) -> None:
        self.project = project
        self.state = state
        self.containers = Containers(state, list(project.services))

    # ------------------------------------------------------------ commands

    def build(self, words: list[str]) -> int:
        """What a Dockerfile makes is read from it; nothing is installed: this machine's installation stands for it."""
        _refuse(words)
        for service in self.project.services.values():
            if service.is_built:
                self._image(service, is_built=True)
                compiled = [sys.executable, "-m", "compileall", "-q", "reconciler", "producers", "consumers"]
                subprocess.run(compiled, cwd=ROOT, check=False)  # as the image's pip does
                (self.state / f"built-{service.image.replace('/', '_')}").touch()
        return 0

    def up(self, words: list[str]) -> int:
        """Starts what does not run, in order, and waits."""
        _refuse([word for word in words if word not in ("--detach", "--wait")])
        if not {"--detach", "--wait"} <= set(words):
            raise NotUnderstood("up without --detach and --wait")
        waiting = {service.name: service for service in self.project.without_profile()}
        coming: dict[str, Coming] = {}
        for name in [name for name, service in waiting.items() if self._image(service) is None]:
            _say(f"{name}: no program of this machine stands for {waiting.pop(name).image}\n")
        while waiting or not all(map(self._is_there, coming.values())):
            reached = {(name, condition) for name, one in coming.items() for condition in one.conditions}
            for name, service in list(waiting.items()):
                if set(service.depends_on.items()) <= reached:
                    coming[name] = self._coming(waiting.pop(name))
            for one in coming.values():
                self._look_at(one)
            time.sleep(PAUSE_SECONDS)
        return 0

    def run(self, words: list[str]) -> int:
        """A container of its own for a service, with other words than its command."""
        words, variables = list(words), {}
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if option == "--env":
                name, _, value = words.pop(0).partition("=")
                variables[name] = value
            elif option not in ("--rm", "--no-deps"):
                raise NotUnderstood(f"run {option}")
        service = self.project.services[words.pop(0)]
        service = replace(service, environment={**service.environment, **variables})
        image = self._known(service)
        name = f"{service.name}-run-{time.monotonic_ns()}"
        words = _command(service, image, words or service.command)
        started = self.containers.start(service, image, words, name=name, is_asking=True)
        code = started.waiter.wait() if started.waiter else 0
        return code if code >= 0 else 128 - code

    def exec(self, words: list[str]) -> int:
        """Another program in a running container."""
        service = self.project.services[words[0]]
        return subprocess.run(self._inside(service, words[1:]), stdin=subprocess.DEVNULL, check=False).returncode

    def logs(self, words: list[str]) -> int:
        """What a service said."""
        (name,) = words
        _say(self.containers.log(name).read_text(errors="replace"))
        return 0

    def ps(self, words: list[str]) -> int:
        """Those that run."""
        _refuse(words)
        for name in self.project.services:
            if self.containers.pid(name) is not None:
                _say(f"{name}\n")
        return 0

    def stop(self, words: list[str]) -> int:
        """Those that are named, or all; what waits for others first."""
        for service in reversed(self._ordered()):
            if not words or service.name in words:
                image = self._image(service)
                if image is not None:
                    self.containers.stop(service, image)
        return 0

    def start(self, words: list[str]) -> int:
        """Starts containers that were stopped."""
        for name in words:
            self._coming(self.project.services[name])
        return 0

    def down(self, words: list[str]) -> int:
        """Stops all; with --volumes the data go, too."""
        _refuse([word for word in words if word != "--volumes"])
        self.stop([])
        if words:
            self.containers.remove_volumes()
        return 0

    # ------------------------------------------------------------ parts

    def _image(self, service: Service, *, is_built: bool = False) -> Image | None:
        image = image_of(service.image)
        if service.is_built and not (is_built or (self.state / f"built-{service.image}").exists()):
            raise NotUnderstood(f"{service.image}: build it first")
        return image

    def _known(self, service: Service) -> Image:
        image = self._image(service)
        if image is None:
            raise NotUnderstood(f"{service.name}: no program of this machine stands for {service.image}")
        return image

    def _coming(self, service: Service) -> Coming:
        image = self._known(service)
        started = self.containers.running(service.name) or self._start(service, image)
        return Coming(service=service, image=image, started=started)

    def _start(self, service: Service, image: Image) -> Started:
        for port in service.ports:
            self._publish(service, port)
        words = _command(service, image, service.command)
        return self.containers.start(service, image, words, name=service.name, is_asking=False)

    def _publish(self, service: Service, port: tuple[str, int, int]) -> None:
        """A port of the machine, once: what comes there goes to the container."""
        mark = self.state / f"published-{port[1]}"
        if not mark.exists():
            there = [port[0], str(port[1]), self.containers.addresses[service.name], str(port[2])]
            with mark.open("ab") as log:
                command = [sys.executable, "-m", "tests.compose.published", *there]
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _inside(self, service: Service, words: list[str]) -> list[str]:
        return self.containers.inside(service, self._known(service), words)

    def _look_at(self, one: Coming) -> None:
        """Asks for its health; starts it again if it has ended and should not have."""
        code = one.started.waiter.poll() if one.started.waiter else None
        if code is None:
            if not one.conditions and self._is_healthy(one):
                one.conditions.add("service_healthy")
            return
        if code == 0 and self.project.is_awaited_to_the_end(one.service.name):
            one.conditions.add("service_completed_successfully")
            return
        if one.service.restart == "no" or one.starts >= STARTS_MAX:
            log = self.containers.log(one.service.name).read_text(errors="replace")
            raise SystemExit(f"{one.service.name} has ended with {code}\n{log[-6000:]}")
        one.starts += 1
        one.conditions.clear()
        one.started = self._start(one.service, one.image)

    def _is_healthy(self, one: Coming) -> bool:
        words = one.image.health if one.service.health is None else one.service.health
        if not words:
            return True
        try:
            command = self._inside(one.service, words)
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=HEALTH_SECONDS)
        except (LookupError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _is_there(self, one: Coming) -> bool:
        if self.project.is_awaited_to_the_end(one.service.name):
            return "service_completed_successfully" in one.conditions
        return "service_healthy" in one.conditions

    def _ordered(self) -> list[Service]:
        """Each after those that it waits for."""
        ordered: dict[str, Service] = {}

        def add(service: Service) -> None:
            for name in service.depends_on:
                add(self.project.services[name])
            ordered.setdefault(service.name, service)

        for service in self.project.services.values():
            add(service)
        return list(ordered.values())


def _command(service: Service, image: Image, words: list[str] | None) -> list[str]:
    """An entry point of the file takes the image's command away."""
    if service.entrypoint is not None:
        return [*service.entrypoint, *(words or [])]
    return [*image.entrypoint, *(image.command if words is None else words)]


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _refuse(words: list[str]) -> None:
    if words:
        raise NotUnderstood(" ".join(words))


def main(arguments: list[str]) -> int:
    """The exit code."""
    if arguments[:1] != ["compose"] or len(arguments) < 2:
        raise NotUnderstood(" ".join(arguments))
    compose = Compose(read_project(Path.cwd()), Path(os.environ["COMPOSE_STATE"]))
    commands = {
        "build": compose.build, "up": compose.up, "run": compose.run, "exec": compose.exec, "logs": compose.logs,
        "ps": compose.ps, "stop": compose.stop, "start": compose.start, "down": compose.down,
    }  # fmt: skip
    if arguments[1] not in commands:
        raise NotUnderstood(arguments[1])
    return commands[arguments[1]](arguments[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
