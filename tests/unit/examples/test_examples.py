"""The data makers: the same seed gives the same records, and the truth they tell is the truth."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tidegate.examples import make_clicks, make_orders
from tidegate.examples.command import Draw
from tidegate.examples.truth import MALFORMED, REJECTED, REPORTED

ROOT = Path(__file__).resolve().parents[3]
ORDER_COLUMNS = {
    "order_id", "customer_id", "ordered_at", "promised_at", "status", "quantity", "amount", "shipping",
}  # fmt: skip


def read_lines(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]


def test_orders_count_what_is_in_the_files(tmp_path: Path) -> None:
    truth = make_orders.make_orders(tmp_path, 4000, Draw(seed=3, faults=0.2, start_id=501), files=7)

    lines = read_lines(tmp_path)
    assert len(lines) == truth.offered == 4000
    assert len(truth.files) == len(list(tmp_path.iterdir())) == 7
    assert truth.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    seen: Counter[str] = Counter()
    for line in lines:
        try:
            order = json.loads(line)
        except json.JSONDecodeError:
            seen["torn_line"] += 1
            continue
        if order.keys() - ORDER_COLUMNS:
            assert order.keys() - ORDER_COLUMNS == {"coupon"}
            seen["unknown_field"] += 1
        elif "order_id" not in order:
            seen["missing_id"] += 1
        elif order["quantity"] == "three" or order["customer_id"] == "C-77" or order["ordered_at"] == "yesterday":
            seen["wrong_type"] += 1
        elif order["quantity"] > 2**31 - 1:
            seen["overflow"] += 1
        elif order["quantity"] < 1:
            seen["zero_quantity"] += 1
        elif order["amount"] < 0:
            seen["negative_amount"] += 1
        elif order["status"] not in make_orders.STATUSES:
            seen["unknown_status"] += 1
        elif order["promised_at"] <= order["ordered_at"]:
            seen["promised_in_the_past"] += 1
        elif len(order["shipping"]["country"]) != 2:
            seen["long_country"] += 1
    assert dict(seen) == truth.by_fault
    assert set(seen) == {fault.name for fault in make_orders.FAULTS}
    assert {fault.effect for fault in make_orders.FAULTS} == {MALFORMED, REJECTED, REPORTED}
    assert truth.malformed == seen["torn_line"] + seen["wrong_type"] + seen["overflow"]
    assert truth.published + truth.quarantined == truth.offered
    assert truth.published == 4000 - sum(seen.values()) + seen["unknown_field"]


def test_the_same_seed_gives_the_same_bytes_and_another_start_id_other_orders(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        make_orders.make_orders(tmp_path / folder, 300, Draw(seed=9, faults=0.1), files=2)
    make_orders.make_orders(tmp_path / "a", 300, Draw(seed=9, faults=0.0, start_id=301), files=2)

    first, second = read_lines(tmp_path / "a"), read_lines(tmp_path / "b")
    assert first[:300] == second
    ids = [json.loads(line)["order_id"] for line in first[300:]]
    assert ids == [f"o-{number:012d}" for number in range(301, 601)]


def test_orders_spread_over_the_days_and_never_leave_a_half_file(tmp_path: Path) -> None:
    make_orders.make_orders(tmp_path, 3000, Draw(faults=0.0), files=3, days=3)

    days = Counter(json.loads(line)["ordered_at"][:10] for line in read_lines(tmp_path))
    assert days == {"2026-03-02": 1000, "2026-03-03": 1000, "2026-03-04": 1000}
    assert not list(tmp_path.glob(".*"))


def test_zero_orders_are_empty_files(tmp_path: Path) -> None:
    truth = make_orders.make_orders(tmp_path, 0, files=2)
    assert (truth.offered, truth.published, read_lines(tmp_path)) == (0, 0, [])
    with pytest.raises(ValueError, match="faults"):
        make_orders.make_orders(tmp_path, 1, Draw(faults=1.5))


def test_clicks_carry_their_faults_and_their_key() -> None:
    records = list(make_clicks.iter_clicks(4000, Draw(seed=2, faults=0.2, start_id=10)))

    good = [(key, json.loads(value)) for key, value, fault in records if fault is None]
    assert all(str(click["user_id"]) == key for key, click in good)
    assert all(len(click["click_id"]) == 14 for _, click in good)
    assert {fault.name for _, _, fault in records if fault} == {fault.name for fault in make_clicks.FAULTS}
    for key, value, fault in records:
        if fault and fault.name == "foreign_key":
            assert str(json.loads(value)["user_id"]) != key
        if fault and fault.name == "torn_line":
            with pytest.raises(json.JSONDecodeError):
                json.loads(value)
    assert records == list(make_clicks.iter_clicks(4000, Draw(seed=2, faults=0.2, start_id=10)))


@pytest.mark.parametrize(("name", "maker"), [("orders", make_orders), ("clicks", make_clicks)])
def test_every_rule_that_a_maker_breaks_is_in_the_suite_and_sets_rows_aside(name: str, maker: object) -> None:
    suite = yaml.safe_load((ROOT / "expectations" / f"{name}.yaml").read_text())
    setting_aside = {
        rule["meta"]["rule"] for rule in suite["expectations"] if rule["meta"].get("on_failure") == "quarantine"
    }
    broken = {fault.rule for fault in maker.FAULTS if fault.effect == REJECTED}  # type: ignore[attr-defined]
    assert broken <= setting_aside
    assert suite["name"] == name
    rules = [rule["meta"]["rule"] for rule in suite["expectations"]]
    assert len(rules) == len(set(rules)) == 10
