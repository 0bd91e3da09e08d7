"""One request of the service: the shipped session over the simulated store and catalog."""

from __future__ import annotations

import random
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.session import TableSession
from regelate.core.policy.policy import CompactionPolicy, RetentionPolicy
from regelate.core.table.table import MAIN_BRANCH
from tests.system.simulation.engine import SimOutputs, no_footer

if TYPE_CHECKING:
    from tests.system.simulation.world import Hand

IDENT = "lake.t"
FOLDER = Path(tempfile.gettempdir())
"""Exists; nothing is written to it, because the engine uploads by itself."""
LIVES_SECONDS = 3600.0
"""No run gets older; the default of config.json."""


@dataclass(frozen=True)
class Request:
    """One request. Two with one `run_id` are a repeat; `number` seeds whatever the request chooses."""

    run_id: str
    number: str
    retention: RetentionPolicy | None = None
    policy: CompactionPolicy | None = None
    part: int = 1
    ref: str = MAIN_BRANCH

    @property
    def rng(self) -> random.Random:
        return random.Random(self.number)


class Session(TableSession):
    """The shipped session, ledger included; its outputs upload rows as JSON."""

    def __init__(self, hand: Hand, ref: str = MAIN_BRANCH) -> None:
        self.manifest_reader = hand.world.reader if hand.actor.rng.random() < 0.5 else ManifestReader()
        super().__init__(
            hand.catalog,
            IDENT,
            self.manifest_reader,
            FOLDER,
            longest_run_seconds=LIVES_SECONDS,
            annotate=no_footer,
            ref=ref,
        )
        self.uploads = self.outputs_of(self.table.metadata, token=self.run_token)
        self.__dict__["outputs"] = self.uploads

    def outputs_of(self, metadata: Any, *, token: str = "") -> SimOutputs:
        run_id = token or f"{self.run_token}-{uuid.uuid4().hex[:8]}"
        return SimOutputs(metadata, self.table.io, self.ledger, run_id=run_id, folder=FOLDER)
