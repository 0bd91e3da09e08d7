"""config.json and the environment -> `Settings`: catalogs, tenants, limits, and the config layer of every policy.

load     which file, which environment, merged, expanded      models   every key, its type, range and default
judge    what is wrong with it, by key path                   machine  the memory and processors at hand
builtin  the overlays that ship, for when there is no file
"""

from regelate.settings.load import load_settings
from regelate.settings.models import (
    MULTI_TENANT,
    SINGLE_TENANT,
    CatalogSettings,
    LimitSettings,
    Settings,
    SettingsError,
)

__all__ = [
    "MULTI_TENANT",
    "SINGLE_TENANT",
    "CatalogSettings",
    "LimitSettings",
    "Settings",
    "SettingsError",
    "load_settings",
]
