"""Transactions of a table: read from its log in one pass, they are those that the table format answers one by one."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from ingest.transactions import Transactions

IDS = [f"{number:024x}" for number in range(20)]


def commit(table: Path, versions: dict[str, int]) -> None:
    transactions = [Transaction(app_id, version) for app_id, version in versions.items()]
    write_deltalake(table, pa.table({"a": [1]}), mode="append", commit_properties=CommitProperties(app_transactions=transactions))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    place = tmp_path / "a b%c"
    commit(place, {app_id: number for number, app_id in enumerate(IDS[:10])})
    commit(place, {f"{app_id}#tail": 7 for app_id in IDS[5:15]})
    return place


def asked(table: Path) -> dict[str, int]:
    handle = DeltaTable(table)
    found = {app_id: handle.transaction_version(app_id) for app_id in wanted()}
    return {app_id: version for app_id, version in found.items() if version is not None}


def wanted() -> list[str]:
    return [*IDS, *(f"{app_id}#tail" for app_id in IDS)]


def test_the_log_from_its_start_and_then_only_what_is_new(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = Transactions()
    assert transactions.reached(DeltaTable(table), wanted()) == asked(table)
    commit(table, {IDS[0]: 100, IDS[19]: 3})
    read = []
    monkeypatch.setattr("ingest.transactions._transactions", lambda commit: read.append(commit) or {})
    transactions.reached(DeltaTable(table), wanted())
    assert len(read) == 1
    monkeypatch.undo()
    assert Transactions().reached(DeltaTable(table), wanted()) == asked(table)


def test_from_a_checkpoint_on(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    commit(table, {IDS[3]: 33})
    assert Transactions().reached(DeltaTable(table), wanted()) == asked(table)


@pytest.mark.parametrize("pointer", ['{"version": 1, "parts": 2}', '{"version": 99}', "no json", '{"size": 3}'])
def test_a_log_of_another_form_is_left_to_the_table_format(table: Path, pointer: str) -> None:
    handle, right = DeltaTable(table), asked(table)
    (table / "_delta_log/_last_checkpoint").write_text(pointer)
    assert Transactions().reached(handle, wanted()) == right


def test_a_commit_written_in_another_way_is_not_read_wrongly(table: Path) -> None:
    path = table / "_delta_log" / f"{1:020d}.json"
    path.write_text(path.read_text().replace('{"txn":{', '{ "txn": {'))
    assert Transactions().reached(DeltaTable(table), wanted()) == asked(table)


def test_a_table_made_anew_at_the_same_place_is_read_anew(table: Path, tmp_path: Path) -> None:
    transactions = Transactions()
    transactions.reached(DeltaTable(table), wanted())
    table.rename(tmp_path / "old")
    commit(table, {IDS[2]: 5})
    commit(table, {IDS[2]: 6})
    assert transactions.reached(DeltaTable(table), wanted()) == {IDS[2]: 6}


def test_an_older_handle_sees_no_later_commit(table: Path) -> None:
    transactions, older = Transactions(), DeltaTable(table)
    right = transactions.reached(older, wanted())
    commit(table, {IDS[0]: 100})
    assert transactions.reached(DeltaTable(table), wanted())[IDS[0]] == 100
    assert transactions.reached(older, wanted()) == right
