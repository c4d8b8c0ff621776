"""Containers for the services of docker-compose.yaml without a container engine: Linux namespaces and what `mount` and
`ip` can do in them, as any user.

Each container has its own network address on a bridge, host name, processes and file system: this machine's folders
read-only, with the image's and the compose file's mounts over them. A service runs with exactly the command, the
environment and the user that Compose would give it; only the entrypoint of Postgres' image is our own. What Docker adds
and this does not: limits, logging, restarts.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.compose import relay
from tests.compose.compose_file import Service, load_services, read_image_settings
from tests.support.examples import REPOSITORY
from tools.processes import die_with_parent, list_descendants, wait_until

HERE = Path(__file__).parent
POSTGRES_USER = 999
_NETWORK = "10.213.77"
_TOOLS = ("unshare", "nsenter", "mount", "pivot_root", "ip")
# Some of them lie where only root's PATH leads.
_ENVIRONMENT = {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])}


def find_obstacle() -> str | None:
    """Why containers cannot be made on this machine, and what would allow it; None: they can."""
    missing = [name for name in _TOOLS if shutil.which(name, path=_ENVIRONMENT["PATH"]) is None]
    if missing:
        return f"no {', '.join(missing)} on PATH (Debian: apt install util-linux mount iproute2)"
    probe = (
        "mount -t tmpfs none /tmp && ip link add probe0 type bridge && ip link add probe1 type veth peer name probe2"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "sh", "-c", probe],
        capture_output=True,
        text=True,
        env=_ENVIRONMENT,
    )
    if done.returncode == 0:
        return None
    return (
        f"namespaces are not permitted here ({done.stderr.strip()}); allow them: sysctl user.max_user_namespaces=10000 "
        "kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0; modprobe bridge veth"
    )


@dataclass
class Container:
    """A running container of a service."""

    service: Service
    identity: str
    address: str
    process: subprocess.Popen[bytes]
    pid: int
    user: int
    environment: dict[str, str]
    log_path: Path
    serves: bool
    healthy: bool = False

    def is_running(self) -> bool:
        """Whether its process 1 lives."""
        return self.process.poll() is None


@dataclass
class Engine:
    """One network of containers with its volumes in ``folder``; a context manager, all is gone when it ends."""

    folder: Path
    image: Path
    postgres_binaries: Path
    variables: Mapping[str, str]
    containers: list[Container] = field(default_factory=list)
    _listeners: list[socket.socket] = field(default_factory=list)
    _last_address: int = 1

    def __enter__(self) -> Engine:
        self.folder.mkdir(parents=True)
        (self.folder / "volumes").mkdir()
        self.services = load_services(self.variables)
        for service in self.services.values():
            for mount in service.mounts:
                if mount.kind == "volume":
                    (self.folder / "volumes" / mount.source).mkdir(exist_ok=True)
        script = (
            "ip link set lo up && ip link add services type bridge && "
            f"ip address add {_NETWORK}.1/24 dev services && ip link set services up && echo up && exec sleep infinity"
        )
        command = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        with (self.folder / "network.log").open("wb") as log:
            self._holder = subprocess.Popen(
                [*command, "--mount-proc", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_ENVIRONMENT,
                preexec_fn=die_with_parent,
            )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n", (self.folder / "network.log").read_text()
        [self._holder_pid] = list_descendants(self._holder.pid)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._holder.poll() is not None:
            return  # its pid may be another process's by now
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        # The kernel ends every process of the containers with the first one of their outermost process namespace, and
        # that one is not reaped before all others are.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._holder_pid, signal.SIGKILL)
        self._holder.wait(60)
        for container in self.containers:
            container.process.wait()

    def volume(self, name: str) -> Path:
        """Where a named volume lies."""
        return self.folder / "volumes" / name

    def find(self, service: str) -> list[Container]:
        """The running containers of a service."""
        serving = [found for found in self.containers if found.serves and found.is_running()]
        return [found for found in serving if found.service.name == service]

    def start(self, name: str, command: Sequence[str] = ()) -> Container:
        """One more container of service ``name``, started whatever it depends on.

        With a ``command`` instead of its own it is not the service: no other one finds it by name or by a port.
        """
        service = self.services[name]
        self._last_address += 1
        address = f"{_NETWORK}.{self._last_address}"
        identity = secrets.token_hex(6)
        postgres = service.image.startswith("postgres:")
        settings, user = ({}, POSTGRES_USER) if postgres else read_image_settings()
        if postgres:
            settings["PATH"] = f"{self.postgres_binaries}:/usr/bin:/bin"
        own = ("sh", "/opt/docker/postgres_entrypoint.sh") if postgres else service.command
        environment = {**settings, **service.environment, "HOSTNAME": identity}
        root = self.folder / f"root-{identity}"
        root.mkdir()
        spec = {
            "id": identity,
            "root": str(root),
            "command": list(command or own),
            "environment": environment,
            "user": user,
            "folder": "/" if postgres else "/opt/tidegate",
            "binds": [*self._list_binds(service, postgres), (str(self._hosts_path(identity)), "/etc/hosts", True)],
            "tmpfs": ["/opt/tidegate", "/opt/airflow", "/home/tidegate", "/run"],
            "etc": {
                "passwd": f"root:x:0:0::/root:/bin/sh\nservice:x:{user}:{user}::/home/tidegate:/bin/sh\n",
                "group": f"root:x:0:\nservice:x:{user}:\n",
                "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
                "machine-id": "",
            },
        }
        spec_path = self.folder / f"{identity}.json"
        spec_path.write_text(json.dumps(spec))
        self._hosts_path(identity).touch()  # before it is mounted; written in place after that
        log_path = self.folder / f"{name}-{self._last_address}.log"
        enter = ["nsenter", f"--target={self._holder_pid}", "--user", "--net", "--mount", "--pid"]
        isolate = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child"]
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                [
                    *enter,
                    "--preserve-credentials",
                    *isolate,
                    sys.executable,
                    str(HERE / "container.py"),
                    str(spec_path),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_ENVIRONMENT,
                preexec_fn=die_with_parent,
            )
        pid = self._connect(process, address, log_path)
        container = Container(service, identity, address, process, pid, user, environment, log_path, serves=not command)
        self.containers.append(container)
        self._tell_names()
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        for outside, port, inside in service.published if container.serves else ():
            self._publish(container, outside, port, inside)
        return container

    def run_in(self, container: Container, command: Sequence[str], timeout_seconds: float = 60) -> tuple[int, str]:
        """What `docker exec` does: the exit code and what was said."""
        enter = ["nsenter", f"--target={container.pid}", "--user", "--mount", "--uts", "--ipc", "--net", "--pid"]
        user = ["unshare", "--user", f"--map-user={container.user}", f"--map-group={container.user}", "--"]
        whole = [*enter, "--preserve-credentials", f"--wdns={self._folder_of(container)}", *user, *command]
        # nsenter itself is looked up on this machine's PATH, the command on the container's.
        done = subprocess.run(
            [shutil.which("nsenter") or "nsenter", *whole[1:]],
            env=container.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_seconds,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def check_health(self, container: Container) -> tuple[bool, str]:
        """Run the container's health check, as the compose file has it."""
        if not container.is_running():
            return False, f"ended with code {container.process.returncode}"
        assert container.service.health_command is not None
        try:
            code, said = self.run_in(container, container.service.health_command)
        except subprocess.TimeoutExpired:
            return False, "no answer in time"
        return code == 0, said

    def kill(self, container: Container) -> None:
        """SIGKILL: the container and everything in it."""
        os.kill(container.pid, signal.SIGKILL)
        container.process.wait()

    def stop(self, container: Container, timeout_seconds: float) -> bool:
        """SIGTERM, as `docker stop`; whether it ended in time."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(container.pid, signal.SIGTERM)
        return wait_until(lambda: not container.is_running(), timeout_seconds)

    def _folder_of(self, container: Container) -> str:
        return "/" if container.user == POSTGRES_USER else "/opt/tidegate"

    def _list_binds(self, service: Service, postgres: bool) -> list[tuple[str, str, bool]]:
        binds = [(str(REPOSITORY), str(REPOSITORY), True)]
        if postgres:
            binds.append((str(HERE / "postgres_entrypoint.sh"), "/opt/docker/postgres_entrypoint.sh", True))
        else:
            binds += [(str(self.image / name), f"/opt/{name}", True) for name in ("venv", "jars", "kafka")]
            binds.append((str(REPOSITORY / "docker"), "/opt/docker", True))
        for mount in service.mounts:
            source = self.volume(mount.source) if mount.kind == "volume" else REPOSITORY / mount.source
            binds.append((str(source), mount.target, mount.read_only))
        return binds

    def _connect(self, process: subprocess.Popen[bytes], address: str, log_path: Path) -> int:
        """Give the container its network; the pid of its process 1 as seen from here."""

        def find() -> int | None:
            for pid in list_descendants(process.pid):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if words[0] == sys.executable.encode() and words[1].endswith(b"container.py"):
                        return pid
            return None

        assert wait_until(lambda: find() is not None or process.poll() is not None, 10, 0.01)
        pid = find()
        assert pid is not None, log_path.read_text()
        enter = ["nsenter", f"--target={self._holder_pid}", "--user", "--net", "--preserve-credentials", "sh", "-ec"]
        link = f"v{self._last_address}"
        script = f"ip link add {link} type veth peer name eth0 netns {pid}; ip link set {link} master services up"
        subprocess.run([*enter, script], check=True, env=_ENVIRONMENT)
        script = f"ip link set lo up; ip address add {address}/24 dev eth0; ip link set eth0 up"
        enter = ["nsenter", f"--target={pid}", "--user", "--net", "--preserve-credentials", "sh", "-ec"]
        subprocess.run([*enter, f"{script}; ip route add default via {_NETWORK}.1"], check=True, env=_ENVIRONMENT)
        return pid

    def _hosts_path(self, identity: str) -> Path:
        return self.folder / f"{identity}.hosts"

    def _tell_names(self) -> None:
        """The names of every container in every one, its service's and its own: what Docker's name server does."""
        alive = [container for container in self.containers if container.is_running()]
        names = "".join(
            f"{found.address} {found.identity}{f' {found.service.name}' if found.serves else ''}\n" for found in alive
        )
        for container in alive:
            self._hosts_path(container.identity).write_text("127.0.0.1 localhost\n" + names)

    def _publish(self, container: Container, address: str, port: int, inside: int) -> None:
        path = str(self.folder / f"port-{port}")
        enter = ["nsenter", f"--target={self._holder_pid}", "--user", "--net", "--pid", "--preserve-credentials"]
        subprocess.Popen(
            [*enter, sys.executable, relay.__file__, path, container.address, str(inside)],
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        assert wait_until(lambda: Path(path).exists(), 10)
        self._listeners.append(relay.publish(address, port, path))
