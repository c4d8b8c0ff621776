"""A Spark master URL: which kind of place it names, and where its master listens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

MASTER_FORMS = "local[N], spark://HOST:PORT, k8s://URL or yarn"

_LOCAL = re.compile(r"local(\[(?P<cores>\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?")
_STANDALONE = re.compile(r"spark://(?P<addresses>[A-Za-z0-9._-]+:\d{1,5}(,[A-Za-z0-9._-]+:\d{1,5})*)")
_KUBERNETES = re.compile(r"k8s://(https?://)?[A-Za-z0-9._\[\]:-]+(/\S*)?")


@dataclass(frozen=True)
class Master:
    """A master. ``addresses`` are those of a standalone master and its standbys; ``local_cores`` is None for all."""

    url: str
    kind: Literal["local", "standalone", "yarn", "kubernetes"]
    addresses: tuple[tuple[str, int], ...] = ()
    local_cores: int | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether executors are separate processes, perhaps on other machines."""
        return self.kind != "local"


def parse_master(url: str) -> Master:
    """The master that ``url`` names. Raises ValueError when it is none of :data:`MASTER_FORMS`."""
    if local := _LOCAL.fullmatch(url):
        cores = local["cores"] or "1"
        return Master(url, "local", local_cores=None if cores == "*" else int(cores))
    if url == "yarn":
        return Master(url, "yarn")
    if standalone := _STANDALONE.fullmatch(url):
        pairs = (address.rpartition(":") for address in standalone["addresses"].split(","))
        addresses = tuple((host, int(port)) for host, _, port in pairs)
        if all(0 < port < 65536 for _, port in addresses):
            return Master(url, "standalone", addresses)
    if _KUBERNETES.fullmatch(url):
        return Master(url, "kubernetes")
    raise ValueError(f"{url!r} is none of {MASTER_FORMS}")
