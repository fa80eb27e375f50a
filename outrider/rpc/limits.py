"""Numbers that both ends of a connection must agree on."""

from __future__ import annotations

MAX_TOKENIZER_BYTES = 31 * 2**20
"""The largest tokenizer.json in use has about 262,000 ids and 30 MiB."""

MAX_MESSAGE_BYTES = MAX_TOKENIZER_BYTES + 2**20
"""The largest message is a tokenizer with its chat template; a prompt of a million ids has 4 MiB."""

KEEPALIVE_TIME_S = 60.0
KEEPALIVE_TIMEOUT_S = 10.0
"""A peer that vanished without a word is noticed after both."""
