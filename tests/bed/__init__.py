"""The test bed: a real AstrBot, a scripted model, web chat and OneBot clients (README.md)."""

from .bot import BedError, Bot, Row
from .hosts import HOSTS, Host, find_host
from .model import (
    Gate,
    Model,
    Reply,
    Request,
    Usage,
    call,
    context_too_long,
    cut,
    drop,
    fail,
    malformed,
    refuse_parameter,
    say,
)
from .onebot import OneBot, Person
from .webchat import Turn, WebChat
from .wire import violations

__all__ = [
    "HOSTS",
    "BedError",
    "Bot",
    "Gate",
    "Host",
    "Model",
    "OneBot",
    "Person",
    "Reply",
    "Request",
    "Row",
    "Turn",
    "Usage",
    "WebChat",
    "call",
    "context_too_long",
    "cut",
    "drop",
    "fail",
    "find_host",
    "malformed",
    "refuse_parameter",
    "say",
    "violations",
]
