"""Whether a session may be opened at all, whatever it asks for."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.rpc.errors import InvalidArgument, ResourceExhausted, Unavailable
from outrider.wire.worker import Header

ID_BYTES = 16
"""Session and peer ids have 128 bits."""

RETRY_AFTER_S = 1.0


@dataclass(slots=True)
class Admission:
    """Room for sessions. Changed by the engine's thread."""

    max_sessions: int
    # Why none may be opened, while the worker drains or loads another model.
    closed: str = ""

    def check(self, num_sessions: int) -> None:
        """Raises what an Open is refused with beside `num_sessions` others."""
        if self.closed:
            raise Unavailable(self.closed, retry_after_s=RETRY_AFTER_S)
        if num_sessions >= self.max_sessions:
            raise ResourceExhausted(
                f"the worker serves {num_sessions} sessions, its limit (max-sessions)",
                retry_after_s=RETRY_AFTER_S,
            )


def check_header(header: Header) -> None:
    """Raises `InvalidArgument` for a header that can not open a session."""
    if len(header.session) != ID_BYTES:
        problem = f"header.session has {len(header.session)} bytes; give 16 random ones"
        raise InvalidArgument(problem, field="header.session")
    if header.epoch < 1:
        raise InvalidArgument("header.epoch is 0; a session's first epoch is 1", field="header.epoch")
