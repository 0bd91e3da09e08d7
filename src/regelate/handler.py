"""`lambda_handler`: dispatch, wired for Lambda. Importing it opens nothing; the first request that needs more does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from regelate.entrypoints.dispatch import dispatch
from regelate.entrypoints.log import adopt_libraries, logger
from regelate.entrypoints.memory import use_system_memory
from regelate.service.facade import Provider, Service

MAX_ANSWER_BYTES = 6_291_556
"""What Lambda lets through as one synchronous answer; of a larger one the caller would learn nothing but its size."""

Handler = Callable[[Any, LambdaContext | None], dict[str, Any]]


@cache
def service() -> Service:
    """Return the service of this process, built from config.json and the environment when first needed."""
    from regelate.service.build import build_service

    use_system_memory()
    return build_service()


def make_handler(provider: Provider) -> Handler:
    """Return a Lambda handler for a service."""

    adopt_libraries()

    @logger.inject_lambda_context(clear_state=True)
    def logged(event: Any, context: LambdaContext) -> dict[str, Any]:
        return dispatch(event, context, provider, max_answer_bytes=MAX_ANSWER_BYTES)

    def handle(event: Any, context: LambdaContext | None) -> dict[str, Any]:
        """Answer an event; without a context, as who tries it by hand calls it, log lines name no function."""
        if context is None:
            return dispatch(event, None, provider, max_answer_bytes=MAX_ANSWER_BYTES)
        return logged(event, context)

    return handle


lambda_handler = make_handler(service)
