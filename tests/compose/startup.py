"""`docker compose up --wait` for the engine of the tests: each service when what it depends on is as it says."""

from __future__ import annotations

import time
from collections.abc import Collection

from tests.compose.engine import Container, Engine

Event = tuple[str, str]
"""A service, and what became of it: started, healthy or completed."""


def bring_up(engine: Engine, profiles: Collection[str], timeout_seconds: float) -> list[Event]:
    """Start the services of ``profiles`` and wait until each is healthy, or completed; what happened, in its order.

    Raises AssertionError with the end of a log when one ends that should not, fails, or is not healthy in time.
    """
    wanted = {name: service for name, service in engine.services.items() if service.profiles & set(profiles)}
    running: dict[str, list[Container]] = {}
    looked_at: dict[str, float] = {}
    events: list[Event] = []
    deadline = time.monotonic() + timeout_seconds
    reached = {
        "service_healthy": "healthy",
        "service_completed_successfully": "completed",
        "service_started": "started",
    }
    while True:
        for name, service in wanted.items():
            met = all((other, reached[condition]) in events for other, condition in service.depends_on.items())
            if name not in running and met:
                running[name] = [engine.start(name) for _ in range(service.replicas)]
                events.append((name, "started"))
        for name, containers in running.items():
            if events.count((name, "healthy")) or events.count((name, "completed")):
                continue
            if wanted[name].health_command is None:
                [container] = containers
                if not container.is_running():
                    assert container.process.returncode == 0, f"{name} failed:\n{read_log(container)}"
                    events.append((name, "completed"))
            elif time.monotonic() >= looked_at.get(name, 0.0) + wanted[name].start_interval_seconds:
                looked_at[name] = time.monotonic()
                for container in containers:
                    container.healthy = container.healthy or engine.check_health(container)[0]
                    assert container.is_running(), f"{name} ended:\n{read_log(container)}"
                if all(container.healthy for container in containers):
                    events.append((name, "healthy"))
        done = {name for name, what in events if what in ("healthy", "completed")}
        if done == set(wanted):
            return events
        assert time.monotonic() < deadline, "\n".join(
            [f"not up after {timeout_seconds:.0f} s: {sorted(set(wanted) - done)}; so far: {events}"]
            + [f"{name}:\n{read_log(found)}" for name in running if name not in done for found in running[name]]
        )
        time.sleep(0.2)


def read_log(container: Container, lines: int = 25) -> str:
    """The end of what a container has said."""
    text = container.log_path.read_text(errors="replace").splitlines()
    return "\n".join(f"  | {line}" for line in text[-lines:])
