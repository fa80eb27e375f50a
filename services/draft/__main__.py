"""`python -m services.draft`."""

import sys

from outrider.rpc.process import run_process
from services.draft.server import LOAD_ERRORS, serve
from services.draft.settings import DraftSettings

if __name__ == "__main__":
    sys.exit(run_process("draft", DraftSettings, serve, expected_errors=LOAD_ERRORS))
