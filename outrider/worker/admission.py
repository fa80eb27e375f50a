"""Whether a session may be opened at all, whatever it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.rpc.errors import InvalidArgument, ResourceExhausted, Unavailable
from outrider.wire.worker import Header

if TYPE_CHECKING:
    from outrider.runtime.runtime import Runtime
    from outrider.worker.session import Session

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

    def check_memory(
        self,
        sessions: Iterable[Session],
        runtime: Runtime,
        scope: bytes | None,
        tokens: Sequence[int],
        context_length: int,
    ) -> None:
        """Raises what an Open is refused with when KV memory is short.

        All sessions as long as they are now must fit the pool together with the new one, pages that it
        shares with others counted once. They may outgrow it later: then they take turns.

        Example: of 10 pages sessions hold 6, and one whose KV was dropped needs 2 again. A prompt of 100
        tokens, which needs 2, is let in; one of 130 is not.
        """
        if len(tokens) >= context_length:
            return  # a draft that can not read the session will not be asked to
        promised = 0
        for session in sessions:
            if session.length < context_length:
                promised += max(0, session.length // runtime.page_size + 1 - session.sequence.num_pages)
        wanted = runtime.num_missing_pages(scope, tokens)
        if wanted + promised > runtime.num_free_pages:
            free = max(0, runtime.num_free_pages - promised)
            raise ResourceExhausted(
                f"the session needs {wanted} KV pages, and {free} of {runtime.num_pages} are free "
                "(kv-budget-mib)",
                retry_after_s=RETRY_AFTER_S,
            )


def check_header(header: Header) -> None:
    """Raises `InvalidArgument` for a header that can not open a session."""
    if len(header.session) != ID_BYTES:
        problem = f"header.session has {len(header.session)} bytes; give 16 random ones"
        raise InvalidArgument(problem, field="header.session")
    if header.epoch < 1:
        raise InvalidArgument("header.epoch is 0; a session's first epoch is 1", field="header.epoch")
