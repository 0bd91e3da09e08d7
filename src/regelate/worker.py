"""`lambda_handler` of the worker: the handler's, with everything that a compaction needs loaded beforehand.

The API's function loads as little as it can, because many of its requests need no engine. The worker always needs it:
Lambda's init phase has the processor to itself, and a compaction's first seconds are its own.
"""

from __future__ import annotations

from regelate.errors import RegelateError
from regelate.handler import application, lambda_handler

__all__ = ["lambda_handler"]


def preload() -> None:
    """Import the engine, PyIceberg and the configured catalog's client. A fault is left to the first request, which
    answers with it.
    """
    import regelate.adapters.duckdb.engine
    import regelate.adapters.duckdb.query
    import regelate.adapters.iceberg.rows
    import regelate.adapters.iceberg.scan
    import regelate.adapters.iceberg.session  # noqa: F401  what compact, query and write import when first called
    from regelate.adapters.iceberg.catalogs import preload_catalog

    try:
        preload_catalog(application().settings.catalog()[1].type)
    except RegelateError:
        return


preload()
