"""Containers without an engine: namespaces over this machine's own files, and a layer that takes what they write.

A container has process ids, mounts, a host name and a network of its own; /etc/hosts has the names of the services.
What it writes outside of its volumes is gone with it, and nothing of this machine is changed. Needs root.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.compose.images import Image, installed
from tests.compose.project import Service

NETWORK = ipaddress.ip_network("10.211.55.0/24")
BRIDGE = "compose"
#: Programs that this needs besides the services' own.
PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux"}

#: $1: the layer, $2: what follows, as a program. Run by the first process of the container.
_ROOT = """
set -e
layer=$1
root=$layer/root
mount -t overlay overlay -o lowerdir=/,upperdir="$layer/upper",workdir="$layer/work" "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
place() { # SOURCE TARGET MODE
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; touch "$root$2"; fi
    mount --bind "$1" "$root$2"
    if [ "$3" = ro ]; then mount -o remount,bind,ro "$root$2"; fi
}
"""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A container's first process, as the machine sees it."""

    pid: int
    #: What waits for it, and knows how it ended. None: an earlier command started it, and it runs.
    waiter: subprocess.Popen[bytes] | None = None


class Containers:
    """All containers of one machine, in a folder that other commands find again."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """`names`: of all services, in an order that stays."""
        self.folder = folder
        self.addresses = dict(zip(names, map(str, list(NETWORK.hosts())[1:]), strict=False))
        self._names = list(names)

    def prepare(self) -> None:
        """The network and the file of names, once a machine."""
        if (self.folder / "hosts").exists():
            return
        for name in ("volumes", "logs", "pids", "layers"):
            (self.folder / name).mkdir()
        gateway = f"{next(NETWORK.hosts())}/{NETWORK.prefixlen}"
        _ran("ip", "link", "set", "lo", "up")
        _ran("ip", "link", "add", BRIDGE, "type", "bridge")
        _ran("ip", "address", "add", gateway, "dev", BRIDGE)
        _ran("ip", "link", "set", BRIDGE, "up")
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self.addresses.items())]
        (self.folder / "hosts").write_text("".join(f"{line}\n" for line in lines))

    # ------------------------------------------------------------ starting

    def running(self, name: str) -> Started | None:
        """The container that an earlier command started."""
        pid = self.pid(name)
        return None if pid is None else Started(pid=pid)

    def start(self, service: Service, image: Image, words: Sequence[str], *, name: str, is_asking: bool) -> Started:
        """Starts a container. `is_asking`: it has the standard streams of this process, and no name in the network."""
        self.prepare()
        layer = self._layer(name)
        address = self._free_address() if is_asking else self.addresses[service.name]
        network = self._network(name, address=None if service.is_alone else address)
        steps = [_ROOT, *self._mounts(service, image), *self._end(service, image, words)]
        script = layer / "start.sh"
        script.write_text("\n".join(steps))
        apart = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        command = ["nsenter", f"--net={network}", *apart, "sh", str(script), str(layer)]
        if is_asking:
            with Path(os.environ.get("TYPED", os.devnull)).open() as typed:
                waiter = subprocess.Popen(command, stdin=typed)
        else:
            with self.log(name).open("ab") as log:
                waiter = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        pid = _only_child(waiter)
        (self.folder / "pids" / name).write_text(str(pid))
        return Started(pid=pid, waiter=waiter)

    def _layer(self, name: str) -> Path:
        """A new layer for what is written."""
        number = next(n for n in count() if not (self.folder / "layers" / f"{name}-{n}").exists())
        layer = self.folder / "layers" / f"{name}-{number}"
        for part in ("upper", "work", "root"):
            (layer / part).mkdir(parents=True)
        for tree in map(Path, installed().shared):
            for folder in [tree, *tree.parents][:-1]:  # a home folder may be closed to the users of images
                place = layer / "upper" / folder.relative_to("/")
                place.mkdir(parents=True, exist_ok=True)
        for place in [layer / "upper", *(layer / "upper").rglob("*")]:
            place.chmod(0o755)
        return layer

    def _network(self, name: str, *, address: str | None) -> Path:
        """A network namespace as a file: with loopback alone, or with an address on the bridge."""
        file = self.folder / "layers" / f"{name}-net-{time.monotonic_ns()}"
        file.touch()
        _ran("unshare", f"--net={file}", "ip", "link", "set", "lo", "up")
        if address is not None:
            inside = ["nsenter", f"--net={file}", "ip"]
            outer = f"v{address}".replace(".", "")
            # That of a container which has ended: its address would answer twice.
            subprocess.run(["ip", "link", "delete", outer], capture_output=True, check=False)
            pair = ["link", "add", "eth0", "type", "veth", "peer", "name", outer, "netns", str(os.getpid())]
            _ran(*inside, *pair)
            _ran("ip", "link", "set", outer, "master", BRIDGE, "up")
            _ran(*inside, "address", "add", f"{address}/{NETWORK.prefixlen}", "dev", "eth0")
            _ran(*inside, "link", "set", "eth0", "up")
        return file

    def _free_address(self) -> str:
        """One that no service has: each asking container gets another one, from the end."""
        used = self.folder / "asking"
        number = int(used.read_text()) + 1 if used.exists() else 1
        used.write_text(str(number))
        return str(list(NETWORK.hosts())[-number])

    def _mounts(self, service: Service, image: Image) -> Iterator[str]:
        for path, owner in image.folders.items():
            yield f'mkdir -p "$root{path}"; chown {owner} "$root{path}"'
        for tree in map(Path, installed().shared):
            if tree.stat().st_dev != Path("/").stat().st_dev or tree.is_relative_to("/tmp"):
                yield f"place {tree} {tree} ro"
        for path, text in image.programs.items():
            program = f'"$root{path}"'
            yield f"mkdir -p $(dirname {program}); printf %s {shlex.quote(text)} > {program}; chmod 755 {program}"
        yield f"place {self.folder / 'hosts'} /etc/hosts ro"
        yield f"hostname {service.name}"
        for source, target, is_read_only in service.volumes:
            place = source if isinstance(source, Path) else self._volume(source, image.folders.get(target, "0:0"))
            yield f"place {shlex.quote(str(place))} {target} {'ro' if is_read_only else 'rw'}"
        for name, file in service.secrets.items():
            yield f"place {shlex.quote(str(file))} /run/secrets/{name} ro"
        yield f'mkdir -p "$root{image.work_folder}"'

    def _volume(self, name: str, owner: str) -> Path:
        place = self.folder / "volumes" / name
        if not place.exists():
            place.mkdir(mode=0o755)
            user, group = owner.split(":")
            shutil.chown(place, int(user) if user.isdigit() else user, int(group) if group.isdigit() else group)
        return place

    def _end(self, service: Service, image: Image, words: Sequence[str]) -> Iterator[str]:
        if service.is_read_only:
            yield 'mount -o remount,bind,ro "$root"'
        yield f'exec chroot "$root" {shlex.join(_as_user(service, image, words))}'

    # ------------------------------------------------------------ running ones

    def pid(self, name: str) -> int | None:
        """The first process of a running container."""
        with suppress(FileNotFoundError):
            pid = int((self.folder / "pids" / name).read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return None if state == "Z" else pid
        return None

    def inside(self, service: Service, image: Image, words: Sequence[str]) -> list[str]:
        """What runs another program in a running container."""
        pid = self.pid(service.name)
        if pid is None:
            raise LookupError(f'service "{service.name}" is not running')
        into = ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
        return [*into, *_as_user(service, image, words)]

    def stop(self, service: Service, image: Image) -> None:
        """The image's signal, then SIGKILL after the service's time."""
        pid = self.pid(service.name)
        if pid is None:
            return
        os.kill(pid, signal.Signals[image.stop_signal])
        deadline = time.monotonic() + service.stop_seconds
        while self.pid(service.name) is not None and time.monotonic() < deadline:
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while self.pid(service.name) is not None:
            time.sleep(0.02)

    def log(self, name: str) -> Path:
        """What a container says."""
        return self.folder / "logs" / name

    def remove_volumes(self) -> None:
        """All data."""
        for place in (self.folder / "volumes").iterdir():
            shutil.rmtree(place)


def _as_user(service: Service, image: Image, words: Sequence[str]) -> list[str]:
    """The words with the service's user, rights and variables, in the image's folder."""
    user, _, group = (service.user or image.user).partition(":")
    become = ["setpriv", f"--reuid={user}", f"--regid={group}"]
    become += [f"--groups={','.join(service.groups)}"] if service.groups else ["--clear-groups"]
    if service.drops_capabilities:
        become += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    variables = {"HOME": "/", **image.environment, **service.environment}
    there = ["sh", "-c", 'cd "$0" && exec "$@"', image.work_folder]
    return [*become, "env", "-i", *_pairs(variables), *there, *words]


def _pairs(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


def _only_child(waiter: subprocess.Popen[bytes]) -> int:
    """The process that `unshare` has forked."""
    children = Path(f"/proc/{waiter.pid}/task/{waiter.pid}/children")
    while waiter.poll() is None:
        with suppress(FileNotFoundError, ValueError):
            return int(children.read_text())
        time.sleep(0.005)
    raise RuntimeError(f"a container could not be made: {waiter.args!r}")


def _ran(*command: str) -> None:
    subprocess.run(command, check=True, timeout=60)
