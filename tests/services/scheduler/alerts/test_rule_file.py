from pathlib import Path

import pytest

from services.scheduler.alerts import DEFAULT_RULES, Action, BadRules, Level, Rule, parse_rules, read_rules

DOCS = Path(__file__).parents[4] / "docs"

ARTICLE = """\
metrics:
  - name: speculative_acceptance_rate
    threshold: [0.15, 0.90]
    alert_level: WARNING
  - name: draft_model_latency
    threshold: [50, 200]  # ms
    alert_level: CRITICAL
  - name: main_model_utilization
    threshold: [0.6, 0.95]
    alert_level: INFO
"""


def test_the_file_of_the_article_loads_as_it_stands():
    assert parse_rules(ARTICLE) == (
        Rule("speculative_acceptance_rate", "speculative_acceptance_rate", 0.15, 0.9, level=Level.WARNING),
        Rule("draft_model_latency", "draft_model_latency", 50, 200, level=Level.CRITICAL),
        Rule("main_model_utilization", "main_model_utilization", 0.6, 0.95, level=Level.INFO),
    )


def test_the_file_of_the_documentation_says_what_holds_without_one():
    assert read_rules(DOCS / "alerts.yml") == DEFAULT_RULES


def test_every_field():
    text = """\
    metrics:
      - name: short
        metric: memory_share
        above: 0.8
        window_s: 5
        alert_level: CRITICAL
        action: lower_depth
        cooldown_s: 7.5
        margin: 0.1
      - {name: throughput, below: 3}
    """
    assert parse_rules(text) == (
        Rule("short", "memory_share", None, 0.8, 5, Level.CRITICAL, Action.LOWER_DEPTH, 7.5, 0.1),
        Rule("throughput", "throughput", 3, None),
    )


def test_a_cooldown_of_its_own_for_each_action():
    text = "metrics: [{name: a, metric: acceptance_rate, below: 0.6, action: reload_draft}]"
    assert parse_rules(text)[0].cooldown_s == 3600


def test_no_rules_at_all():
    assert parse_rules("metrics: []") == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no list of rules; write them under metrics:"),
        ("metrics: {}", "it has no list of rules"),
        ("a: [", "it is no YAML: "),
        ("metrics: []\ngroups: []", "groups is not known at the top"),
        ("metrics: [7]", "rule 1 is 7; write fields such as name: and threshold:"),
        ("metrics: [{threshold: [1, 2]}]", "rule 1: name is None; give each rule one"),
        ("metrics: [{name: a, above: 1}]", "rule 1 (a): metric is 'a'; choose one of acceptance_against"),
        ("metrics: [{name: a, metric: [], above: 1}]", "rule 1 (a): metric is []; choose one of"),
        ("metrics: [{name: throughput, abve: 1}]", "rule 1 (throughput): abve is no field; choose of name,"),
        ("metrics: [{name: throughput}]", "it has no bound; give one of threshold: [low, high], above:"),
        ("metrics: [{name: throughput, above: 1, below: 2}]", "it has above and below; give one of"),
        ("metrics: [{name: throughput, threshold: 3}]", "threshold is 3; give two numbers as [low, high]"),
        ("metrics: [{name: throughput, threshold: [3, x]}]", "threshold is 'x'; give a number"),
        ("metrics: [{name: throughput, threshold: [3, 2]}]", "threshold is [3, 2]; the first must be below"),
        (
            "metrics: [{name: throughput, threshold: [1, 1.05]}]",
            "margin is 0.05, which leaves no room between",
        ),
        ("metrics: [{name: throughput, above: true}]", "above is True; give a number"),
        ("metrics: [{name: throughput, above: .nan}]", "above is nan; give a number"),
        ("metrics: [{name: throughput, below: -1}]", "below is -1; give 0 or more"),
        ("metrics: [{name: throughput, above: 1, window_s: -1}]", "window_s is -1; give 0 or more"),
        (
            "metrics: [{name: throughput, above: 1, margin: 1}]",
            "margin is 1; give 0 or more, and less than 1",
        ),
        (
            "metrics: [{name: throughput, above: 1, alert_level: BAD}]",
            "alert_level is 'BAD'; choose one of INFO",
        ),
        (
            "metrics: [{name: throughput, above: 1, action: [x]}]",
            "action is ['x']; choose one of none, reload",
        ),
        ("metrics: [{name: throughput, above: 1, cooldown_s: 9}]", "name an action too, or remove it"),
        (
            "metrics: [{name: throughput, below: 1, action: reload_draft}]",
            "needs a lower bound of one of accept",
        ),
        (
            "metrics: [{name: acceptance_rate, above: 1, action: reload_draft}]",
            "reload_draft, which needs a low",
        ),
        (
            "metrics: [{name: memory_share, below: 1, action: lower_depth}]",
            "needs an upper bound of one of mem",
        ),
        (
            "metrics: [{name: throughput, above: 1}, {name: throughput, below: 1}]",
            "rule 2 (throughput): name is taken by a rule above; give it another, and name the ",
        ),
    ],
)
def test_what_is_wrong_is_said_with_rule_field_and_fix(text, problem):
    with pytest.raises(BadRules) as raised:
        parse_rules(text)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_is_named_in_its_errors(tmp_path):
    with pytest.raises(BadRules, match=r"nowhere\.yml can not be read"):
        read_rules(tmp_path / "nowhere.yml")
    path = tmp_path / "alerts.yml"
    path.write_bytes(b"\xff")
    with pytest.raises(BadRules, match=r"alerts\.yml can not be read"):
        read_rules(path)
    path.write_text("metrics: [7]", encoding="utf-8")
    with pytest.raises(BadRules, match=r"alerts\.yml: rule 1 is 7"):
        read_rules(path)
