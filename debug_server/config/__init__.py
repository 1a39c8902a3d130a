"""Settings, each declared once with name, type, default and description. Imported by every layer above it."""

from debug_server.config.declare import Setting, section, setting, settings_of
from debug_server.config.gateway import GatewayConfig
from debug_server.config.load import Loaded, load
from debug_server.config.page import env_example, settings_page, with_limits
from debug_server.config.places import Place, Placed, find_place, load_runner, make_data_folder
from debug_server.config.runner import (
    EnvironmentsConfig,
    LimitsConfig,
    PathsConfig,
    RunnerConfig,
    RunnerOptions,
    WorkspacesConfig,
)
from debug_server.config.server import ServerConfig
from debug_server.config.workers import WorkerConfig, load_worker, load_workers

__all__ = [
    "EnvironmentsConfig",
    "GatewayConfig",
    "LimitsConfig",
    "Loaded",
    "PathsConfig",
    "Place",
    "Placed",
    "RunnerConfig",
    "RunnerOptions",
    "ServerConfig",
    "Setting",
    "WorkerConfig",
    "WorkspacesConfig",
    "env_example",
    "find_place",
    "load",
    "load_runner",
    "load_worker",
    "load_workers",
    "make_data_folder",
    "section",
    "setting",
    "settings_of",
    "settings_page",
    "with_limits",
]
