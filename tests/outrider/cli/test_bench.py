from tests.support.command_line import outrider


def test_arguments_and_exit_code_are_those_of_the_measuring_program():
    help_ = outrider("bench", "--help")
    assert help_.returncode == 0
    assert help_.stdout.startswith("Usage: outrider bench [OPTIONS]")
    refused = outrider("bench", "--part", "naps")
    assert refused.returncode == 2
    assert "part 'naps' is not known" in refused.stderr
