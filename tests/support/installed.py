"""tidegate as people have it: an environment with the wheel, and a folder far from the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and an empty folder to work in."""

    folder: Path
    work: Path
    env: dict[str, str] = field(default_factory=dict)

    def call(self, *command: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command with a program of the environment's own; nothing of the repository is on any path."""
        kept = ("LANG", "JAVA_HOME", "TMPDIR")
        base = {key: os.environ[key] for key in kept if key in os.environ}
        java = shutil.which("java")
        path = [str(self.folder / "bin"), *([str(Path(java).parent)] if java else []), "/usr/bin", "/bin"]
        given = {
            "HOME": str(self.work),
            "PATH": os.pathsep.join(path),
            "TIDEGATE_JVM_ARCHIVE": "off",
            **self.env,
            **env,
        }
        return subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=cwd or self.work,
            env={**base, **given},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def tidegate(self, *arguments: str, cwd: Path | None = None, **env: str) -> str:
        """What a command that must succeed prints."""
        done = self.call("tidegate", *arguments, cwd=cwd, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
