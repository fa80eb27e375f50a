"""`python -m services.validator`."""

import sys

from outrider.rpc.process import run_process
from services.validator.server import LOAD_ERRORS, serve
from services.validator.settings import ValidatorSettings

if __name__ == "__main__":
    sys.exit(run_process("validator", ValidatorSettings, serve, expected_errors=LOAD_ERRORS))
