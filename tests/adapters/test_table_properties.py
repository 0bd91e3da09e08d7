import pytest

from regelate.adapters.iceberg.tables.properties import gc_enabled


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_a_table_that_says_true_lets_its_files_be_deleted(value: str) -> None:
    assert gc_enabled({"gc.enabled": value})


def test_a_table_that_says_nothing_lets_its_files_be_deleted() -> None:
    assert gc_enabled({})


@pytest.mark.parametrize("value", ["false", "FALSE", "no", "0", "", "flase"])
def test_any_other_value_keeps_every_file_as_in_java(value: str) -> None:
    assert not gc_enabled({"gc.enabled": value})
