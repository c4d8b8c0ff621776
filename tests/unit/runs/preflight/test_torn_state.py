"""A file of the state folder that was cut or exchanged: named, and the command that the error names is a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import NAME, ByHand
from tidegate.core.errors import DisagreementError
from tidegate.runs.opening import recover_run
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.restart.repair import repair_pipeline

FILES = ["birth.json", "published/*.json", "manifests/*/*.json", "retired/*.json"]


@pytest.mark.parametrize("content", [b"", b'{"version": 1', b"{}", b"[]", b"\0" * 40, b"\xff{}"])
@pytest.mark.parametrize("pattern", FILES)
def test_a_torn_file_is_named_and_repair_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, content: bytes
) -> None:
    flow = ByHand(tmp_path, monkeypatch)
    flow.offer(1, 2)
    flow.run()
    if pattern.startswith("retired"):
        flow.write_spec("./data/inbox")  # another spelling is a change: repair retires the query
        repair_pipeline(flow.project, NAME, dry_run=False)
        flow.run()
    flow.offer(3)
    flow.ingest(flow.open())
    path = max(path for path in flow.paths.state.glob(pattern) if path.is_file())
    path.write_bytes(content)
    with pytest.raises(DisagreementError) as refused:
        context = flow.open()
        facts = recover_run(context)
        check_agreement(facts, NAME)
    if refused.value.code == "STATE_FILE_UNREADABLE":
        assert str(path) in str(refused.value.where) and ".torn" in str(refused.value.fix)
        path.rename(f"{path}.torn")
    repair_pipeline(flow.project, NAME, dry_run=False)
    flow.run()
    assert flow.ids() == [1, 2, 3]
    assert gather_facts(flow.paths.pinned(), flow.spec).unpublished == []
