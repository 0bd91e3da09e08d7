"""`lambda_handler` of the worker: the handler's, with everything that a compaction needs loaded beforehand.

The API's function loads as little as it can, because many of its requests need no engine. The worker always needs it:
Lambda's init phase has the processor to itself, and a compaction's first seconds are its own.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regelate.handler import Handler


def load() -> Handler:
    """Import the engine, PyIceberg and the configured catalog's client, and return the handler.

    Importing makes objects that stay: to look for garbage among them would cost a tenth of the start, and to look again
    after every request is as vain, so they are frozen.
    """
    gc.disable()
    try:
        from regelate.entrypoints.memory import use_system_memory
        from regelate.handler import lambda_handler

        use_system_memory()
        _preload()
        return lambda_handler
    finally:
        gc.freeze()
        gc.enable()


def _preload() -> None:
    """Import what COMPACT, QUERY and WRITE import when first called. A fault is left to the first request, which
    answers with it.
    """
    import regelate.adapters.duckdb.engine
    import regelate.adapters.duckdb.query
    from regelate.adapters.iceberg.catalogs import preload
    from regelate.errors import RegelateError
    from regelate.handler import service

    try:
        settings = service().settings
        preload(settings.catalog()[1].kind)
    except RegelateError:
        return
    if settings.jobs.store == "dynamodb":
        import regelate.adapters.records.dynamo_jobs
        import regelate.adapters.records.sqs  # noqa: F401


lambda_handler = load()
