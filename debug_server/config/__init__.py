"""Settings, each declared once with name, type, default and description. Imported by every layer above it.

The settings of a part of the server (gateway, workers, tasks, dispatch) and the page of all of them are imported from
their own modules: a command line needs none of them.
"""

from debug_server.config.declare import Setting, section, setting, settings_of
from debug_server.config.load import Loaded, load
from debug_server.config.places import ConfigLocation, LoadedConfig, find_config_location, load_runner, make_data_folder
from debug_server.config.runner import (
    EnvironmentsConfig,
    HistoryConfig,
    IsolationConfig,
    LimitsConfig,
    PathsConfig,
    RunnerConfig,
    RunnerOptions,
    WorkspacesConfig,
)
from debug_server.config.server import ServerConfig

__all__ = [
    "EnvironmentsConfig",
    "HistoryConfig",
    "IsolationConfig",
    "LimitsConfig",
    "Loaded",
    "PathsConfig",
    "ConfigLocation",
    "LoadedConfig",
    "RunnerConfig",
    "RunnerOptions",
    "ServerConfig",
    "Setting",
    "WorkspacesConfig",
    "find_config_location",
    "load",
    "load_runner",
    "make_data_folder",
    "section",
    "setting",
    "settings_of",
]
