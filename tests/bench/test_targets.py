from bench.targets import best, measured, rows


def _by_title(document):
    return {target.title: (target, found) for target, found in measured(document)}


def test_every_row_of_a_full_document_but_the_missing_workload_is_measured(document):
    missing = [title for title, (_, found) in _by_title(document).items() if found is None]
    assert missing == [target.title for target in rows() if target.title.endswith(": code")]


def test_an_empty_document_has_no_figures():
    assert all(found is None for _, found in measured({"parts": {}}))


def test_the_best_configuration_is_the_one_that_is_fastest_against_plain(document):
    assert best(document, "json") == "model-4"
    target, found = _by_title(document)["best / own plain: json"]
    assert (found.value, found.note) == (2.5, "model-4")
    assert target.verdict(found.value) == "must"


def test_the_speed_of_a_peer_is_no_configuration(document):
    document["parts"]["speedup"]["summary"]["json"]["hf-plain"]["to"]["plain"]["median"] = 99.0
    assert best(document, "json") == "model-4"


def test_limits_from_above_are_judged_the_other_way_round(document):
    table = _by_title(document)
    target, found = table["one process / through the services: drafted"]
    assert target.verdict(found.value) == "missed"
    assert target.verdict(1.1) == "must"
    assert target.verdict(1.0) == "aim"
    target, found = table["TTFT with speculation / plain"]
    assert (found.value, target.verdict(found.value)) == (1.02, "must")
    target, found = table["validator beyond weights, KV, interpreter (MB)"]
    assert (found.value, found.note) == (200.0, "at its peak 350")
