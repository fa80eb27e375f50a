"""What is kept for sessions to come: patterns, answers, and what control has learnt.

Nothing that is kept can change an output: it is drafted from, and what is drafted is verified.
"""

from outrider.store.candidates import Candidate, CandidateCache
from outrider.store.controls import ControlStore
from outrider.store.namespace import Namespace
from outrider.store.patterns import Continuation, PatternCache
from outrider.store.store import BadStoreUrl, Store, check_url, open_store

__all__ = [
    "BadStoreUrl",
    "Candidate",
    "CandidateCache",
    "Continuation",
    "ControlStore",
    "Namespace",
    "PatternCache",
    "Store",
    "check_url",
    "open_store",
]
