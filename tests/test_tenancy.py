"""Who may ask for which table: rows 6, 7 and 8 of the fault catalogue."""

from __future__ import annotations

import json
import posixpath
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from regelate.core.table import names
from regelate.errors import InvalidRequest, NotAllowed, NotFound, RegelateError
from regelate.settings import MULTI_TENANT, SINGLE_TENANT, Settings
from regelate.settings.models import CatalogSettings
from regelate.tenancy import DEFAULT_TENANT, Address, Tenancy

WAREHOUSE = "s3://lake/warehouse"


def settings(**changes: Any) -> Settings:
    """Two catalogs in one: `shared` holds every tenant's tables under prefixed namespaces, `own` knows no tenants."""
    catalogs = {
        "shared": {"type": "glue", "warehouse": WAREHOUSE, "namespace_template": MULTI_TENANT},
        "own": {"type": "glue", "warehouse": "s3://other", "namespace_template": SINGLE_TENANT},
    }
    plain = {"catalogs": catalogs, "default_catalog": "shared", "tenants": ["acme", "globex"], "auth": "claims"}
    return Settings.model_validate_json(json.dumps({**plain, "environment": "development", **changes}))


CLAIMS = Tenancy(settings())
ANYONE = Tenancy(settings(auth="none", tenants="*"))


def refusal(call: Callable[[], object]) -> RegelateError:
    with pytest.raises(RegelateError) as caught:
        call()
    return caught.value


# Row 6: the tenant


def test_a_claim_that_equals_the_body_is_the_tenant() -> None:
    expected = Address(tenant_id="acme", catalog="shared", ident="acme__sales.orders", table="orders")
    assert CLAIMS.resolve("acme", "acme", None, "sales", "orders") == expected
    assert CLAIMS.resolve("acme", None, None, "sales", "orders") == expected
    assert expected.namespace == "acme__sales"
    assert CLAIMS.resolve("acme", None, None, "sales", "orders").told_ident == "sales.orders"


def test_an_unknown_tenant_and_one_that_is_not_the_callers_get_the_same_answer() -> None:
    answers = [
        refusal(lambda c=claim, b=body: CLAIMS.resolve(c, b, None, "sales", "orders")).as_error().as_dict()  # type: ignore[misc]
        for claim, body in [
            ("acme", "globex"),
            ("acme", "nobody"),
            ("nobody", "nobody"),
            ("nobody", None),
            (None, "acme"),
            (None, "nobody"),
            (None, None),
            ("", "acme"),
        ]
    ]
    assert answers[0]["code"] == "FORBIDDEN"
    assert all(answer == answers[0] for answer in answers)
    assert "globex" not in json.dumps(answers[0])


def test_a_refused_tenant_learns_nothing_of_the_catalogs() -> None:
    for catalog in ("shared", "no-such-catalog"):
        assert refusal(lambda c=catalog: CLAIMS.resolve("acme", "globex", c, "a", "t")).code == "FORBIDDEN"  # type: ignore[misc]


def test_forbidden_is_403() -> None:
    fault = refusal(lambda: CLAIMS.resolve("acme", "globex", None, "a", "t"))
    assert isinstance(fault, NotAllowed)
    assert (fault.status, fault.retryable) == (403, False)


def test_a_trusted_event_carries_its_tenant_itself_but_not_an_unknown_one() -> None:
    assert CLAIMS.resolve(None, "globex", None, "a", "t", trusted=True).tenant_id == "globex"
    assert refusal(lambda: CLAIMS.resolve(None, "nobody", None, "a", "t", trusted=True)).code == "FORBIDDEN"
    assert refusal(lambda: CLAIMS.resolve(None, None, None, "a", "t", trusted=True)).code == "MISSING_FIELD"


def test_without_auth_the_body_names_the_tenant_and_a_claim_means_nothing() -> None:
    assert ANYONE.resolve("globex", "acme", None, "a", "t").tenant_id == "acme"
    assert refusal(lambda: ANYONE.resolve("globex", None, None, "a", "t")).code == "MISSING_FIELD"


def test_a_request_without_tenant_means_the_only_one_there_is() -> None:
    one = Tenancy(settings(auth="none", tenants=["acme"]))
    assert one.resolve(None, None, None, "a", "t").ident == "acme__a.t"
    assert one.resolve(None, None, "own", "a", "t").tenant_id == "acme"
    assert ANYONE.resolve(None, None, "own", "a", "t").tenant_id == DEFAULT_TENANT
    several = Tenancy(settings(auth="none"))
    for catalog in ("own", "shared"):
        assert refusal(lambda c=catalog: several.resolve(None, None, c, "a", "t")).code == "MISSING_FIELD"  # type: ignore[misc]


def test_no_configured_tenant_lets_nobody_in() -> None:
    closed = Tenancy(settings(tenants=[]))
    assert refusal(lambda: closed.resolve("acme", "acme", None, "a", "t")).code == "FORBIDDEN"


def test_an_unknown_catalog_is_not_found() -> None:
    fault = refusal(lambda: CLAIMS.resolve("acme", "acme", "other", "a", "t"))
    assert isinstance(fault, NotFound)
    assert fault.code == "CATALOG_NOT_FOUND"


# Rows 7 and 8: names


@pytest.mark.parametrize(
    "namespace", ["globex__sales", "a.b", "A", "_a", "a__", "__a", "-a", "a b", "", "..", "a/b", "a\0"]
)
def test_a_namespace_that_could_reach_another_tenants_is_refused(namespace: str) -> None:
    fault = refusal(lambda: CLAIMS.resolve("acme", "acme", None, namespace, "t"))
    assert (fault.code, fault.status, fault.details["field"]) == ("INVALID_IDENTIFIER", 400, "namespace")


@pytest.mark.parametrize("tenant", ["", "..", "a/b", "a\\b", "a\0b", "a\nb", "a" * 65])
def test_a_malformed_tenant_is_refused_before_anybody_is_asked(tenant: str) -> None:
    for tenancy in (CLAIMS, ANYONE):
        fault = refusal(lambda t=tenancy: t.resolve("acme", tenant, None, "a", "t"))  # type: ignore[misc]
        assert (fault.code, fault.details["field"]) == ("INVALID_IDENTIFIER", "tenant_id")


@pytest.mark.parametrize("tenant", ["acme__sales", "_acme", "Acme", "a.b"])
def test_a_tenant_that_would_blur_the_template_is_refused_in_a_shared_catalog_only(tenant: str) -> None:
    assert refusal(lambda: ANYONE.resolve(None, tenant, "shared", "a", "t")).code == "INVALID_IDENTIFIER"
    assert ANYONE.resolve(None, tenant, "own", "a", "t").ident == "a.t"


def test_tables_of_other_engines_are_addressed_under_their_own_names_where_the_catalog_has_no_tenants() -> None:
    address = ANYONE.resolve(None, "acme", "own", "Raw Data.Änderungen", "Orders__2025")
    assert (address.ident, address.namespace) == ("Raw Data.Änderungen.Orders__2025", "Raw Data.Änderungen")


@pytest.mark.parametrize(("namespace", "table"), [("Raw", "t"), ("a", "T"), ("a", "x__y"), ("a__b", "t")])
def test_names_that_we_create_are_strict_in_every_catalog(namespace: str, table: str) -> None:
    assert ANYONE.resolve(None, "acme", "own", namespace, table).ident == f"{namespace}.{table}"
    fault = refusal(lambda: ANYONE.resolve(None, "acme", "own", namespace, table, creating=True))
    assert fault.code == "INVALID_IDENTIFIER"


def test_a_namespace_alone_can_be_addressed() -> None:
    address = CLAIMS.resolve("acme", "acme", None, "sales", None)
    assert (address.ident, address.namespace, address.table) == ("acme__sales", "acme__sales", None)


def test_braces_in_a_name_are_only_braces() -> None:
    assert ANYONE.resolve(None, "acme", "own", "{tenant_id}", "t").ident == "{tenant_id}.t"


# An alphabet that seeks collisions: the separator's own character everywhere that a name may hold it.
STRICT = st.from_regex(r"[ab0](_?[ab0-]){0,4}_?", fullmatch=True)


def is_name(text: str) -> bool:
    try:
        names.check_namespace(text, strict=True)
        names.check_tenant(text, strict=True)
    except InvalidRequest:
        return False
    return True


@given(STRICT, STRICT, STRICT, STRICT)
def test_two_tenants_never_share_a_namespace(tenant: str, namespace: str, other_tenant: str, other: str) -> None:
    assert all(map(is_name, (tenant, namespace, other_tenant, other)))
    one = ANYONE.resolve(None, tenant, "shared", namespace, "t")
    two = ANYONE.resolve(None, other_tenant, "shared", other, "t")
    assert (one.ident == two.ident) == ((tenant, namespace) == (other_tenant, other))


@given(STRICT, STRICT, STRICT)
def test_the_tenant_of_a_namespace_is_told_from_its_name(tenant: str, namespace: str, other: str) -> None:
    inside = ANYONE.resolve(None, tenant, "shared", namespace, None).ident
    assert ANYONE.everybody("shared").tenant_of(inside) == tenant
    scope = replace(ANYONE.everybody("shared"), tenants=(other,))
    assert scope.tenant_of(inside) == (tenant if tenant == other else None)


@pytest.mark.parametrize("inside", ["sales", "__sales", "acme__", "acme__a__b", "Acme__sales", "acme___", "a/b__c", ""])
def test_a_namespace_that_no_tenant_can_have_made_is_nobodys(inside: str) -> None:
    assert ANYONE.everybody("shared").tenant_of(inside) is None


def test_in_a_catalog_without_tenants_all_is_the_only_ones_or_no_matter_whose() -> None:
    assert ANYONE.everybody("own").tenant_of("sales") == "default"
    only = Tenancy(settings(tenants=["acme"]))
    assert only.everybody("own").tenant_of("sales") == "acme"
    assert not Tenancy(settings(auth="none", tenants=[])).everybody("own").holds("sales")


def test_no_short_name_collides_with_any_other() -> None:
    """Every pair of names up to four characters over the separator's alphabet: none is left to chance."""
    short = [text for text in _texts("a_", 4) if is_name(text)]
    idents = [ANYONE.resolve(None, tenant, "shared", ns, "t").ident for tenant in short for ns in short]
    assert len(short) > 8
    assert len(set(idents)) == len(idents)


# Every character that separates something somewhere (idents, folders, globs, escapes), and what folds into a letter.
NASTY = st.lists(
    st.sampled_from([*"ab0_-.aA /\\%*?\0\n", "__", "..", ".db", "\uff21", "\u00e4", "a\u0308", "\u00df"]), max_size=6
).map("".join)
NAME = STRICT | NASTY
ADDRESSES = st.tuples(NAME, NAME, NAME)
PAIRS = ADDRESSES.flatmap(
    lambda a: st.tuples(st.just(a), st.just(a) | ADDRESSES | st.tuples(st.just(a[0]), NAME, st.just(a[2])))
)


def resolved(tenancy: Tenancy, catalog: str, asked: tuple[str, str, str], *, creating: bool) -> Address | None:
    """Return the address of (tenant, namespace, table), None for names that are refused as such."""
    tenant, namespace, table = asked
    with suppress(InvalidRequest):
        return tenancy.resolve(None, tenant, catalog, namespace, table, creating=creating)
    return None


def folders(address: Address) -> tuple[str, str]:
    """Where a catalog puts the table, as a store that knows neither case nor accents apart would spell it."""
    made = (f"{address.namespace}/{address.table}", f"{address.namespace}.db/{address.table}")
    return tuple(unicodedata.normalize("NFKD", posixpath.normpath(path)).casefold() for path in made)  # type: ignore[return-value]


@settings_of_hypothesis(max_examples=500)
@given(PAIRS, st.booleans())
def test_no_two_tables_of_tenants_share_an_ident_or_a_folder_whatever_they_are_called(
    pair: tuple[tuple[str, str, str], tuple[str, str, str]], creating: bool
) -> None:
    one, two = pair
    first = resolved(ANYONE, "shared", one, creating=creating)
    second = resolved(ANYONE, "shared", two, creating=creating)
    if first is None or second is None:
        return
    assert (first.ident == second.ident) == (one == two)
    assert bool(set(folders(first)) & set(folders(second))) == (one == two)
    assert (first.namespace == second.namespace) == (one[:2] == two[:2])
    for mine, their in ((first, two), (second, one)):  # and neither may put files into the other's folder
        place = f"{WAREHOUSE}/{their[0]}__{their[1]}/{their[2]}"
        if one[:2] == two[:2]:
            ANYONE.check_location(mine, place)
        else:
            assert refusal(lambda: ANYONE.check_location(mine, place)).code == "FORBIDDEN"  # noqa: B023  called at once


@given(PAIRS)
def test_no_two_tables_of_a_catalog_without_tenants_share_an_ident(
    pair: tuple[tuple[str, str, str], tuple[str, str, str]],
) -> None:
    first, second = (resolved(ANYONE, "own", asked, creating=False) for asked in pair)
    if first is not None and second is not None:
        assert (first.ident == second.ident) == (pair[0][1:] == pair[1][1:])


def _texts(alphabet: str, longest: int) -> list[str]:
    found = [""]
    for _ in range(longest):
        found += [text + letter for text in found for letter in alphabet if text + letter not in found]
    return sorted({text for text in found if 0 < len(text) <= longest})


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_whatever_is_asked_the_answer_is_inside_the_tenants_namespaces_or_an_error(
    body: str, namespace: str, table: str
) -> None:
    try:
        address = CLAIMS.resolve("acme", body, None, namespace, table)
    except RegelateError as fault:
        refused = fault.code
    else:
        refused = None
        assert body == "acme"
        assert address.ident == f"acme__{namespace}.{table}"
        assert is_name(namespace)
    assert refused in (None, "FORBIDDEN", "INVALID_IDENTIFIER")


# Row 7: locations


ADDRESS = Address(tenant_id="acme", catalog="shared", ident="acme__sales.orders", table="orders")


@pytest.mark.parametrize(
    "location",
    [
        f"{WAREHOUSE}/acme__sales/orders",
        f"{WAREHOUSE}/acme__sales.db/orders/",
        "s3a://lake/warehouse//acme__sales/x",
        "S3://lake/warehouse/acme__sales/a b",
    ],
)
def test_a_location_inside_the_tenants_own_namespace_is_allowed(location: str) -> None:
    CLAIMS.check_location(ADDRESS, location)


@pytest.mark.parametrize(
    "location",
    [
        f"{WAREHOUSE}/globex__sales/orders",
        f"{WAREHOUSE}/acme__other/orders",
        f"{WAREHOUSE}/acme__sales_/orders",
        f"{WAREHOUSE}/acme__sales/../globex__sales/orders",
        f"{WAREHOUSE}/acme__sales/%2e%2e/globex__sales",
        f"{WAREHOUSE}/acme__sales/./orders",
        f"{WAREHOUSE}/acme__sales\\..\\globex__sales",
        f"{WAREHOUSE}/acme__sales/a\nb",
        f"{WAREHOUSE}/acme__sales?x=/../y",
        f"{WAREHOUSE}/ACME__SALES/orders",
        WAREHOUSE,
        "s3://lake/acme__sales/orders",
        "s3://lake2/warehouse/acme__sales/orders",
        "s3:lake/warehouse/acme__sales/orders",
        "gs://lake/warehouse/acme__sales/orders",
        "/lake/warehouse/acme__sales/orders",
        "lake/warehouse/acme__sales",
        "",
    ],
)
def test_another_tenants_location_is_forbidden_however_it_is_spelt(location: str) -> None:
    fault = refusal(lambda: CLAIMS.check_location(ADDRESS, location))
    assert (fault.code, fault.status) == ("FORBIDDEN", 403)
    assert "globex" not in json.dumps(fault.as_error().as_dict())


def test_one_folder_is_one_folder_with_and_without_a_scheme(tmp_path: Path) -> None:
    catalogs = {
        "shared": {
            "type": "sql",
            "uri": "sqlite://",
            "warehouse": f"file://{tmp_path}/",
            "namespace_template": MULTI_TENANT,
        }
    }
    tenancy = Tenancy(settings(catalogs=catalogs))
    for location in (f"{tmp_path}/acme__sales/t", f"file:{tmp_path}/acme__sales/t", f"file://{tmp_path}/acme__sales/t"):
        tenancy.check_location(ADDRESS, location)
    fault = refusal(lambda: tenancy.check_location(ADDRESS, f"file://host{tmp_path}/acme__sales/t"))
    assert fault.code == "FORBIDDEN"


def test_no_location_is_allowed_where_the_catalog_does_not_say_its_warehouse() -> None:
    for properties in ({"uri": "http://c"}, {"uri": "http://c", "warehouse": "a-name"}):
        catalogs = {"shared": {"type": "rest", "namespace_template": MULTI_TENANT, **properties}}
        tenancy = Tenancy(settings(catalogs=catalogs))
        fault = refusal(lambda t=tenancy: t.check_location(ADDRESS, "s3://lake/acme__sales/t"))  # type: ignore[misc]
        assert fault.code == "FORBIDDEN"


def test_where_a_catalog_has_no_tenants_a_location_is_nobody_elses() -> None:
    address = Address(tenant_id="acme", catalog="own", ident="a.t", table="t")
    CLAIMS.check_location(address, "s3://anywhere/at/all")


@pytest.mark.parametrize(
    ("warehouse", "folders"),
    [("file:///data/w", ("/data/w",)), ("/data/w", ("/data/w",)), ("s3://b/w", ()), ("file:/data/w", ("/data/w",))],
)
def test_only_folders_of_this_machine_need_to_be_made(warehouse: str, folders: tuple[str, ...]) -> None:
    catalog = CatalogSettings.model_validate({"type": "sql", "uri": "postgresql://h/d", "warehouse": warehouse})
    assert catalog.local_folders() == tuple(map(Path, folders))
