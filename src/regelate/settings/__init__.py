"""config.json and the environment -> `Settings`: catalogs, tenants, limits, and the config layer of every policy.

load     which file, which environment, merged, expanded      models   every key, its type, range and default
judge    what is wrong with it, by key path                   tenants  those of them about tenants
builtin  the overlays that ship, for when there is no file    machine  the memory and processors at hand
"""

from regelate.settings.judge import SESSION_MARGIN_SECONDS
from regelate.settings.load import load_settings
from regelate.settings.models import (
    ANY_TENANT,
    MULTI_TENANT,
    SINGLE_TENANT,
    CatalogSettings,
    Settings,
    SettingsError,
)
from regelate.settings.tenants import LimitSettings, ResultSettings

__all__ = [
    "ANY_TENANT",
    "MULTI_TENANT",
    "SESSION_MARGIN_SECONDS",
    "SINGLE_TENANT",
    "CatalogSettings",
    "LimitSettings",
    "ResultSettings",
    "Settings",
    "SettingsError",
    "load_settings",
]
