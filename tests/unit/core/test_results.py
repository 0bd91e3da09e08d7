"""What stored results are called: the tenant first, and nobody in another's folder."""

from __future__ import annotations

from posixpath import normpath

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.query.results import StoredResult, result_key

TENANTS = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["..", ".", "a/b", "a%2Fb", "a", "A", "a.", "../a", "a/../b"]
)


@given(TENANTS, TENANTS, st.integers(0, 4_102_444_800_000))
def test_no_tenants_results_lie_in_the_folder_of_another(one: str, two: str, now_ms: int) -> None:
    mine, theirs = (result_key(tenant, now_ms, "0" * 32) for tenant in (one, two))
    assert (mine.split("/")[0] == theirs.split("/")[0]) == (one == two)
    assert len(mine.split("/")) == 3
    assert normpath(mine) == mine
    assert mine.isascii()
    assert mine.isprintable()


def test_a_result_is_named_by_its_tenant_its_day_and_a_token() -> None:
    assert result_key("acme", 1_737_090_000_000, "c0ffee") == "acme/2025-01-17/c0ffee.ndjson"


def test_the_end_of_a_url_is_told_in_utc_and_the_url_is_in_no_log() -> None:
    stored = StoredResult(url="https://b/k?X-Amz-Signature=s", expires_ms=1_737_090_000_000, size_bytes=7)
    assert stored.expires_at == "2025-01-17T05:00:00Z"
    assert "Signature" not in repr(stored)
