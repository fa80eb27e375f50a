"""The running sessions of a scheduler: opening, finding, ending them, and describing the whole."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from outrider.rpc.errors import NoEqualReplica, NotFound, Unavailable
from outrider.store import Namespace, open_store
from outrider.telemetry import In, Metrics, Reading, Tracing
from outrider.telemetry.metric_names import NUM_REQUESTS_RUNNING, NUM_REQUESTS_WAITING
from outrider.wire.scheduler import Finished, FinishRequest, GenerateEvent, GenerateRequest
from outrider.wire.state import ControlState, SchedulerState
from services.scheduler.admission import check_against_model, check_shape, plan_of
from services.scheduler.control.control import Control
from services.scheduler.control.memory import ControlMemory
from services.scheduler.figures import Figures
from services.scheduler.metering import Meter
from services.scheduler.ports import ValidatorPort
from services.scheduler.session import Session
from services.scheduler.sources import SessionFacts
from services.scheduler.spans import SessionSpan
from services.scheduler.waiting import WaitingRoom

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from outrider.store import Store
    from outrider.wire.worker import ModelInfo
    from services.scheduler.alerts import Alerts
    from services.scheduler.fleet import Fleet
    from services.scheduler.settings import SchedulerSettings

ID_BYTES = 16
MAX_ENDED = 256
"""Sessions remembered after their end: a caller may still shorten the one that it just read to its end."""
WATCH_INTERVAL_S = 0.1
"""Changes that come faster are told together."""


class Generations:
    """All sessions of this process."""

    def __init__(
        self,
        settings: SchedulerSettings,
        fleet: Fleet,
        tracing: Tracing,
        metrics: Metrics | None = None,
        store: Store | None = None,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._tracing = tracing
        self._running: dict[bytes, Session] = {}
        self._ended: OrderedDict[bytes, Session] = OrderedDict()
        self._draining = False
        # Requests that have no validator yet, and those that none has room for.
        self._num_waiting = 0
        self._waiting = WaitingRoom()
        self.figures = Figures()
        self.alerts: Alerts | None = None
        self.control = Control(settings, lambda: self.alerts.depth_cap if self.alerts else None)
        self._store = store or open_store("")
        self.memory = ControlMemory(self.control, self._store.control)
        metrics = metrics or Metrics(In.SCHEDULER)
        self._meter = Meter(metrics, self.figures)
        metrics.read(
            lambda: [
                Reading(NUM_REQUESTS_RUNNING, len(self._running)),
                Reading(NUM_REQUESTS_WAITING, self._num_waiting + self._waiting.num_waiting),
            ]
        )

    @property
    def state(self) -> SchedulerState:
        """Workers, sessions, control and alerts of this moment."""
        return SchedulerState(
            self._fleet.validator_states,
            self._fleet.draft_states,
            num_sessions=len(self._running),
            num_waiting=self._num_waiting + self._waiting.num_waiting,
            control=self._control_state,
            alerts=self.alerts.states if self.alerts else (),
            alert_history=self.alerts.history if self.alerts else (),
            store=self._store.state,
        )

    @property
    def _control_state(self) -> ControlState:
        figures = self.figures.snapshot()
        return ControlState(
            policy=self._settings.policy,
            committed=self._meter.num_committed,
            tokens_per_s=figures.get("throughput", 0.0),
            rounds_by_k=tuple(self.control.rounds_by_k),
            sources=self._meter.sources,
            depth_cap=self.control.cap(),
            figures=figures,
        )

    async def generate(
        self, request: GenerateRequest, parent: Context | None
    ) -> AsyncGenerator[GenerateEvent, None]:
        """Run one session. Closing the generator frees it on all workers.

        Raises:
            OutriderError: before the first event: a bad request, or nobody to take it.
        """
        check_shape(request)
        plan = plan_of(request.speculation, self._settings)
        arrived_s = time.monotonic()
        self._num_waiting += 1
        try:
            port = await self._validator_for(request)
        finally:
            self._num_waiting -= 1
        check_against_model(request, port.info)
        await self.memory.read(port.info.model)
        ends_itself = () if request.sampling.ignore_eos else port.info.eos_ids
        stored = self._store if request.store else None
        control = self.control.session(port.info.model, request.workload, plan, request.speculation)
        facts = SessionFacts(
            session=secrets.token_bytes(ID_BYTES),
            request=request,
            tokens=[*request.prompt, *request.output_so_far],
            end_ids=frozenset((*request.sampling.stop_ids, *ends_itself)),
            vocab_size=port.info.vocab_size,
            workers=self._fleet,
            settings=self._settings,
            waiting=self._waiting,
            control=control,
            store=stored,
            namespace=_namespace(request, port.info),
            meter=self._meter.session(
                port.info.model, workload=request.workload, waited_s=time.monotonic() - arrived_s
            ),
        )
        span = SessionSpan(self._tracing, parent, facts.session, request)
        session = Session(facts, plan, port, span, control)
        self._running[session.id] = session
        self._fleet.notify()
        try:
            async with aclosing(session.run()) as events:
                async for event in events:
                    yield event
        finally:
            session.close()
            self._retire(session)

    def finish(self, request: FinishRequest) -> Finished:
        """End a session at a length of the caller's choice.

        Raises:
            NotFound: no such session runs, or has just run, here.
            InvalidArgument: the length is more than was committed.
        """
        session = self._running.get(request.session) or self._ended.get(request.session)
        if session is None:
            raise NotFound(
                f"no session {request.session.hex()} runs here; it may have ended", field="session"
            )
        return session.finish(request.kept_length, request.reason)

    async def watch(self) -> AsyncGenerator[SchedulerState, None]:
        """The state, at once and whenever it has changed; ends with the drain, which it would hold up."""
        told = None
        while not self._draining:
            # Taken before looking: what happens while the caller reads counts too.
            change = self._fleet.change
            state = self.state
            # What moves all the time is no change of its own.
            changes = (state.validators, state.drafts, state.num_sessions, state.alert_history)
            if changes != told:
                told = changes
                yield state
            await change.wait()
            await asyncio.sleep(WATCH_INTERVAL_S)

    async def purge(self, tenant: str) -> int:
        """Forget what the store holds of a tenant; how many entries there were. Raises Unavailable."""
        return await self._store.purge(tenant)

    async def drain(self) -> None:
        """The process is about to end: sessions go on for its grace, watches do not."""
        self._draining = True
        self._fleet.notify()

    async def _validator_for(self, request: GenerateRequest) -> ValidatorPort:
        """The least loaded that may take the session; waits a little for one."""
        try:
            async with asyncio.timeout(self._settings.validator_wait_s):
                while not (ports := self._fleet.validators(numerics_id=request.numerics_id)):
                    await self._fleet.changed()
        except TimeoutError:
            ports = self._fleet.validators() if self._settings.failover == "any" else []
        if ports:
            return ports[0]
        why = self._fleet.why_no_validator()
        if request.numerics_id and self._fleet.validators():
            raise NoEqualReplica(
                f"no validator of numerics id {request.numerics_id} is ready ({why}); "
                "send the request without output_so_far",
                field="numerics_id",
            )
        raise Unavailable(f"no validator is ready ({why}); try again", retry_after_s=1.0)

    def _retire(self, session: Session) -> None:
        del self._running[session.id]
        self._ended[session.id] = session
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        self._fleet.notify()


def _namespace(request: GenerateRequest, info: ModelInfo) -> Namespace:
    return Namespace(
        tokenizer=info.tokenizer_fingerprint,
        model=info.weight_fingerprint,
        adapter=info.adapter,
        tenant=request.tenant,
        salt=request.cache_salt,
    )
