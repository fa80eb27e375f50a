"""Rules over the scheduler's figures that tell, and act, when something is out of bounds."""

from services.scheduler.alerts.alerts import Alerts
from services.scheduler.alerts.defaults import DEFAULT_RULES
from services.scheduler.alerts.port import AlertPort, FleetPort
from services.scheduler.alerts.rule_file import BadRules, parse_rules, read_rules
from services.scheduler.alerts.rules import Action, Level, Rule

__all__ = [
    "DEFAULT_RULES",
    "Action",
    "AlertPort",
    "Alerts",
    "BadRules",
    "FleetPort",
    "Level",
    "Rule",
    "parse_rules",
    "read_rules",
]
