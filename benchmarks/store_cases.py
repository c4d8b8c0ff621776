"""Sources, tables, quarantine and state in one bucket of a local S3 server, beside the local disk and a plain job."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.store import S3Store

from benchmarks.cluster_cases import measure_on
from benchmarks.figures import Row, compare_costs
from benchmarks.meter import Cost, measure
from benchmarks.workbench import Workbench, alternate
from tidegate.core.paths import find_cache
from tidegate.examples.command import Draw
from tidegate.examples.make_orders import make_orders
from tools.jars import GROUPS, ensure_jars
from tools.object_servers import S3Server
from tools.spark_cluster import start_cluster

if TYPE_CHECKING:
    from benchmarks.cases import Size

BUCKET = "lake"
FAULTS = 0.001
SMALL_ROWS = 1000
MILLION = 1_000_000
KEYS = 50_000
DISK = "local disk"
_IDLE_TICKS = 5
_PUTS_AT_ONCE = 16
_LIST = """
import sys
from tidegate.core.storage import ObjectPath
from tidegate.core.storage.user_objects import list_below
assert list_below(ObjectPath(sys.argv[1]))
"""


@dataclass
class StoredWorkbench(Workbench):
    """A project with the examples' files on the disk, and all else below a prefix of its own: the name of ``folder``.

    Its plain job has everything there too.
    """

    server: S3Server

    def __post_init__(self) -> None:
        super().__post_init__()
        prefix = f"{BUCKET}/{self.folder.name}"
        spec = self.project / "jobs" / "orders" / "pipeline.yaml"
        spec.write_text(spec.read_text().replace("path: data/inbox/orders", f"path: s3://{prefix}/inbox"))
        for place in ("warehouse", "quarantine", "state"):
            self.env[f"TIDEGATE__{place.upper()}"] = f"s3://{prefix}/{place}"
        self.env |= self.server.environment()
        self.plain_places = tuple(f"s3a://{prefix}/{place}" for place in ("inbox", "plain/table", "plain/checkpoint"))
        # The working copy of the state is not to outlive this folder; the class archive is that of the other cases.
        cache = self.folder / "cache"
        (cache / "tidegate").mkdir(parents=True)
        for archive in (find_cache() / "tidegate").glob("*.jsa"):
            (cache / "tidegate" / archive.name).symlink_to(archive)
        self.env["XDG_CACHE_HOME"] = str(cache)

    def receive(self, folder: Path) -> None:
        """Have the files of ``folder`` in the inbox: each is uploaded."""
        store = S3Store(
            BUCKET,
            endpoint=self.server.endpoint,
            access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            region=self.env["AWS_REGION"],
            client_options={"allow_http": True},
        )
        with ThreadPoolExecutor(_PUTS_AT_ONCE) as pool:
            for _ in pool.map(
                lambda path: obstore.put(store, f"{self.folder.name}/inbox/{path.name}", path), folder.iterdir()
            ):
                pass

    def state(self, pipeline: str = "orders") -> Path:
        """The working copy of the state folder of ``pipeline``."""
        [copy] = (self.folder / "cache" / "tidegate" / "state").glob(f"*/{pipeline}/copy")
        return copy

    def run_plain_files(self, *, stop_when: Callable[[], bool] | None = None, master: str | None = None) -> Cost:
        """The plain job over the same inbox; s3a is told where the server is, and nothing else."""
        ensure_jars(["s3a"])
        submit = [] if master is None else ["--master", master]
        submit += ["--jars", ",".join(str(path) for path in sorted(GROUPS["s3a"].folder.glob("*.jar")))]
        place = {"endpoint": self.server.endpoint, "endpoint.region": "us-east-1", "path.style.access": "true"}
        for key, value in place.items():
            submit += ["--conf", f"spark.hadoop.fs.s3a.{key}={value}"]
        return self.run_plain("plain_files_job.py", *self.plain_places, submit=tuple(submit), stop_when=stop_when)


@contextmanager
def _run_server(bench: Workbench) -> Iterator[S3Server]:
    server = S3Server.start_in(bench.folder / "server", None, True)
    try:
        server.make_bucket(BUCKET)
        yield server
    finally:
        server.stop()


def _make_files(bench: Workbench, rows: int, files: int, number: int) -> Path:
    folder = bench.folder / f"made-{number}"
    make_orders(folder, rows, Draw(faults=FAULTS, start_id=1 + number * rows), files=files)
    return folder


def run_store_idle(bench: Workbench, size: Size) -> list[Row]:
    """A tick with nothing new, in a bucket and on the disk."""
    with _run_server(bench) as server:
        stored, disk = StoredWorkbench(bench.folder / "stored", server), Workbench(bench.folder / "disk")
        made = _make_files(bench, SMALL_ROWS, 1, 0)
        for side in (stored, disk):
            side.receive(made)
            side.run()
            side.expect_rows(SMALL_ROWS)
            side.run()
        requests, ticks = server.count_requests(BUCKET), max(size.repeats, _IDLE_TICKS)
        ours, other = alternate(ticks, lambda _: stored.run(), lambda _: disk.run())
        asked = requests.counts()
    work = "idle tick in a bucket"
    kinds = ", ".join(f"{number / ticks:g} {kind}" for kind, number in asked.most_common())
    return [
        Row(work, "CPU seconds", ours.cpu_seconds, 0.4, ours, other, DISK),
        Row(work, "CPU ratio", ours.cpu_seconds / other.cpu_seconds, None),
        Row(work, "requests", asked.total() / ticks, 12.0, note=f"requests of an idle tick: {kinds}"),
    ]


def run_store_small(bench: Workbench, size: Size) -> list[Row]:
    """1,000 new rows a run, in projects that have run before: in a bucket, on the disk, and by a plain job on s3a."""
    return _compare(bench, size.repeats, SMALL_ROWS, 1, 1.3, is_first=False)


def run_store_million(bench: Workbench, size: Size) -> list[Row]:
    """The first million: in a bucket, on the disk, and by a plain job on s3a."""
    return _compare(bench, max(1, size.repeats // 3), size.rows(MILLION), 8, 1.1, is_first=True)


def _compare(bench: Workbench, repeats: int, rows: int, files: int, limit: float, *, is_first: bool) -> list[Row]:
    """``is_first``: each run is the first of its project."""
    numbers, asked = itertools.count(), {}
    with _run_server(bench) as server:
        requests = server.count_requests(BUCKET)

        def make() -> tuple[StoredWorkbench, Workbench]:
            number = next(numbers)
            return StoredWorkbench(bench.folder / f"stored-{number}", server), Workbench(
                bench.folder / f"disk-{number}"
            )

        pair = make()

        def run_ours(_: int) -> Cost:
            nonlocal pair
            if is_first:
                pair = make()
            made = _make_files(bench, rows, files, next(numbers))
            for side in pair:
                side.receive(made)
            requests.mark()
            cost = pair[0].run()
            asked["tidegate"] = requests.counts().total()
            pair[0].expect_rows(rows)
            return cost

        def run_disk(_: int) -> Cost:
            cost = pair[1].run()
            pair[1].expect_rows(rows)
            return cost

        def run_plain(_: int) -> Cost:
            requests.mark()
            cost = pair[0].run_plain_files()
            asked["plain job"] = requests.counts().total()
            return cost

        sides = (run_ours, run_disk, run_plain)
        if not is_first:
            for run in sides:
                run(0)
        ours, disk, plain = alternate(repeats, *sides)
    work = f"{rows:,} rows in a bucket"
    note = f"requests of a run with {rows:,} rows: " + ", ".join(f"{name} {number:,}" for name, number in asked.items())
    return [
        *compare_costs(work, ours, disk, DISK, limit, None, note),
        *compare_costs(work, ours, plain, "plain job on s3a", 1.0, None),
    ]


def run_store_cluster(bench: Workbench, size: Size) -> list[Row]:
    """The first million on a worker of two cores: executors that share the bucket alone, and those that share the
    folder; and by a plain job on s3a there."""
    rows, numbers = size.rows(MILLION), itertools.count()
    bench.env["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _run_server(bench) as server:
        env = {"PATH": bench.env["PATH"], **server.environment()}
        cluster = start_cluster(bench.folder / "cluster", workers=1, cores=2, env=env)

        def make(kind: Callable[[Path], Workbench]) -> Workbench:
            made = kind(bench.folder / f"project-{next(numbers)}")
            made.env["SPARK_LOCAL_IP"] = "127.0.0.1"
            settings = made.project / "tidegate.yaml"
            settings.write_text(settings.read_text().replace("local[*]", cluster.master_url))
            made.receive(_make_files(bench, rows, 8, next(numbers)))
            return made

        def run(kind: Callable[[Path], Workbench]) -> Cost:
            side = make(kind)
            cost = measure_on(cluster, side.run)
            side.expect_rows(rows)
            return cost

        def run_plain(_: int) -> Cost:
            side = make(partial(StoredWorkbench, server=server))
            assert isinstance(side, StoredWorkbench)
            return measure_on(cluster, partial(side.run_plain_files, master=cluster.master_url))

        try:
            sides = (lambda _: run(partial(StoredWorkbench, server=server)), lambda _: run(Workbench), run_plain)
            ours, shared, plain = alternate(max(1, size.repeats // 3), *sides)
        finally:
            cluster.stop()
    work = f"{rows:,} rows on a cluster, all in a bucket"
    return [
        *compare_costs(work, ours, shared, "cluster with a shared folder", None, None),
        *compare_costs(work, ours, plain, "plain job on s3a", None, None),
    ]


def run_store_keys(bench: Workbench, size: Size) -> list[Row]:
    """A tick with nothing new and 50,000 objects that were read, and the list of them alone; beside as many files."""
    keys = size.rows(KEYS)
    with _run_server(bench) as server:
        stored, disk = StoredWorkbench(bench.folder / "stored", server), Workbench(bench.folder / "disk")

        def list_inbox(_: int) -> Cost:
            command = [sys.executable, "-c", _LIST, f"s3://{BUCKET}/{stored.folder.name}/inbox"]
            return measure(command, cwd=bench.folder, env=stored.env)

        def take(rows: int, files: int, number: int) -> list[Cost]:
            made = _make_files(bench, rows, files, number)
            for side in (stored, disk):
                side.receive(made)
                side.run()
                side.expect_rows(rows)
                side.run()
            return alternate(_IDLE_TICKS, lambda _: stored.run(), lambda _: disk.run(), list_inbox)

        one, _, list_of_one = take(SMALL_ROWS, 1, 0)
        many, other, list_of_many = take(keys, keys, 1)
        requests = server.count_requests(BUCKET)
        stored.run()
        asked = requests.counts().total()
    work = f"{keys:,} objects that were read"
    name = "with one object"
    return [
        Row(
            f"{work}: their list", "CPU seconds more", list_of_many.cpu_seconds - list_of_one.cpu_seconds, 0.3,
            list_of_many, list_of_one, name,
        ),
        Row(f"{work}: an idle tick", "CPU seconds more", many.cpu_seconds - one.cpu_seconds, None, many, one, name),
        Row(f"{work}: an idle tick", "CPU ratio", many.cpu_seconds / other.cpu_seconds, None, many, other, DISK),
        Row(f"{work}: an idle tick", "requests", float(asked), None),
    ]  # fmt: skip
