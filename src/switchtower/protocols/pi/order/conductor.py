"""The order of pi commands: who is admitted, who is replayed, and that each is told to have finished exactly once.

Knows nothing of what commands do (`ports.Handler`) nor of where outcomes are kept (`ports.Ledger`). All of it happens on
one event loop; `receive` never waits.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import UNSET, Raw

from switchtower.core import journal
from switchtower.protocols.pi import strings
from switchtower.protocols.pi.order import contracts, inbound, lifecycle, metrics, ports, rates, receipts
from switchtower.protocols.pi.order.jobs import Follower, Job, Pending, Stage
from switchtower.protocols.pi.order.limits import Limits
from switchtower.protocols.pi.order.outcomes import Begun, Ended, Known, Namespace
from switchtower.protocols.pi.order.revivals import Revivals
from switchtower.protocols.pi.order.runner import Runner
from switchtower.protocols.pi.order.settling import Settler


class Conductor:
    def __init__(
        self,
        handlers: Mapping[str, ports.Handler],
        ledger: ports.Ledger,
        bulletin: ports.Bulletin,
        *,
        limits: Limits,
        now_ms: Callable[[], int],
    ) -> None:
        self.rejected = metrics.Rejected()
        self._bulletin = bulletin
        self._ledger = ledger
        self._limits = limits
        self._now_ms = now_ms
        self._settler = Settler(ledger, limits, now_ms)
        self._runner = Runner(
            handlers, ledger, bulletin, self._settler, limits, self.rejected, find=self._find_dependency, finished=self._finished
        )
        self._revivals = Revivals(self._settler, self._revived)
        self._rates = rates.Rates(limits)
        self._namespaces: dict[str, Namespace] = {"": Namespace("", limits)}
        self._jobs: set[Job] = set()
        self._following = 0
        self._anonymous_prefix = f"{inbound.ANONYMOUS}{now_ms()}:"
        self._anonymous = 0
        self._closing = False
        self._idle: asyncio.Future[None] | None = None
        self._clock: Callable[[], float] | None = None

    # Admission: pi-server 7.1 and the order of the interop page

    def receive(self, frame: bytes, client: ports.Client) -> None:
        try:
            request = inbound.parse(frame)
        except inbound.Invalid as invalid:
            # pi-server 4.2: what is not admitted has no lifecycle
            if self._closing:
                self._refuse_closing(invalid.command, invalid.id, client)
                return
            self.rejected.validation += 1
            client.respond(lifecycle.refusal(invalid.command, invalid.id, invalid.error))
            return
        if (objection := client.objection(request)) is not None:
            # As for what is not valid: before anything is looked up, so that a replay shows nothing either.
            self.rejected.validation += 1
            client.respond(lifecycle.refusal(request.type, request.id, objection))
            return
        self.admit(request, client)

    def admit(self, request: inbound.Request, client: ports.Client) -> None:
        if self._closing:
            self._refuse_closing(request.type, request.id, client)
            return
        id_ = request.id
        if id_ is None:
            self._anonymous += 1
        told = lifecycle.told(request, id_ if id_ is not None else f"{self._anonymous_prefix}{self._anonymous}")
        self._bulletin.lifecycle(lifecycle.accepted(told))
        namespace: Namespace | None = None
        if request.meaning is not None:
            namespace = self._namespace(client.namespace)
            if self._answered_before(request, client, told, namespace):
                return
        if request.type in contracts.CONTROL:
            exceeded = self._rates.control_exceeded(client.key, self._now())
        else:
            exceeded = self._rates.exceeded(client.key, request.session_id, self._now())
        if exceeded is not None:
            self._reject_hasty(client, told, id_, exceeded)
            return
        if self._crowded():
            self._reject_crowded(client, told, id_)
            return
        at_once = self._runner.at_once(request, client, told)
        if isinstance(at_once, lifecycle.Outcome):
            if namespace is not None:
                namespace.remember(request, at_once, self._now_ms())
            self._bulletin.lifecycle(lifecycle.finished(told, at_once))
            client.respond(lifecycle.response(at_once, id_))
            return
        job = Job(
            command=request.type,
            namespace=client.namespace,
            session_id=request.session_id,
            fingerprint=request.meaning,
            request=request,
            client=client,
            told=told,
        )
        if namespace is not None:
            _name(job, request)
            namespace.enter(job)
        self._jobs.add(job)
        if at_once is None:
            self._runner.add(job)
        else:
            self._runner.go_on(job, at_once)

    def _answered_before(
        self, request: inbound.Request, client: ports.Client, told: lifecycle.Told, namespace: Namespace
    ) -> bool:
        """pi-server 8: a replay, or a conflict. The idempotencyKey is looked at before the id."""
        known: Known | None = None
        if request.idempotency_key is not None:
            known = namespace.by_key(request.session_id, request.idempotency_key, self._now_ms())
            if known is not None and _differs(known, request):
                error = strings.conflicting_key(request.idempotency_key, known.command, request.type)
                self.rejected.conflict += 1
                self._reject(client, told, request.id, error)
                return True
        if known is None and request.id is not None:
            known = namespace.by_id(request.id)
            if known is not None and _differs(known, request):
                self.rejected.conflict += 1
                error = strings.conflicting_id(request.id, known.command, request.type)
                self._reject(client, told, request.id, error)
                return True
        if known is None:
            return False
        if not isinstance(known, Ended) and self._crowded():
            self._reject_crowded(client, told, request.id)
            return True
        if isinstance(known, Begun):
            known = self._revive(namespace, known)
        namespace.also_known_as(known, request.session_id, request.id, request.idempotency_key, self._now_ms())
        if isinstance(known, Pending):
            self._following += 1
            known.followers.append(Follower(request.id, client, told))
        else:
            self._replay(Follower(request.id, client, told), known.outcome)
        return True

    def _replay(self, follower: Follower, outcome: lifecycle.Outcome) -> None:
        """pi-server 7.4: accepted and finished, never started."""
        self._bulletin.lifecycle(lifecycle.finished(follower.told, outcome, replayed=True))
        if outcome.success:
            told = follower.told
            follower.client.replayed(told.commandType, None if told.sessionId is UNSET else told.sessionId)
        follower.client.respond(lifecycle.response(outcome, follower.id, replayed=True))

    def _reject(self, client: ports.Client, told: lifecycle.Told, id_: str | None, error: str) -> None:
        """Accepted, not started, finished; and kept nowhere."""
        self._bulletin.lifecycle(lifecycle.rejected(told, error))
        client.respond(lifecycle.refusal(told.commandType, id_, error))

    def _refuse_closing(self, command: str, id_: str | None, client: ports.Client) -> None:
        self.rejected.shutdown += 1
        client.respond(lifecycle.refusal(command, id_, strings.SHUTTING_DOWN))

    def _crowded(self) -> bool:
        return len(self._jobs) + self._following >= self._limits.in_flight

    def _reject_crowded(self, client: ports.Client, told: lifecycle.Told, id_: str | None) -> None:
        self.rejected.inFlightLimit += 1
        self._reject(client, told, id_, strings.too_many_in_flight(self._limits.in_flight))

    def _reject_hasty(self, client: ports.Client, told: lifecycle.Told, id_: str | None, exceeded: rates.Exceeded) -> None:
        if exceeded == "session":
            self.rejected.rateLimit += 1
            limit = self._limits.session_rate
        else:
            self.rejected.globalRateLimit += 1
            limit = self._limits.client_rate * (rates.CONTROL_SHARE if exceeded == "control" else 1)
        self._reject(client, told, id_, strings.rate_exceeded(limit))

    def _now(self) -> float:
        if self._clock is None:
            self._clock = asyncio.get_running_loop().time
        return self._clock()

    def _namespace(self, name: str) -> Namespace:
        namespace = self._namespaces.get(name)
        if namespace is None:
            if len(self._namespaces) >= self._limits.namespaces:
                # The oldest with nothing under way goes; that of the WebSockets never.
                gone = next((old for old, held in self._namespaces.items() if old and held.idle), None)
                if gone is not None:
                    del self._namespaces[gone]
            namespace = self._namespaces[name] = Namespace(name, self._limits)
        return namespace

    # The end of a command

    def _finished(self, job: Job, outcome: lifecycle.Outcome) -> None:
        self._jobs.discard(job)
        if job.fingerprint is not None:
            self._namespace(job.namespace).leave(job, Ended(job.fingerprint, outcome), self._now_ms())
        # Interop, Envelope: finished, then the response, then what is announced
        self._bulletin.lifecycle(lifecycle.finished(job.told, outcome))
        job.client.respond(lifecycle.response(outcome, job.request.id))
        for frame in job.announcements:
            self._bulletin.announce(frame)
        self._after(job, outcome)

    def _revived(self, pending: Pending, outcome: lifecycle.Outcome) -> None:
        assert pending.fingerprint is not None, "only a command with an identity is revived"
        self._namespace(pending.namespace).leave(pending, Ended(pending.fingerprint, outcome), self._now_ms())
        self._after(pending, outcome)

    def _after(self, pending: Pending, outcome: lifecycle.Outcome) -> None:
        if pending.followers:
            self._following -= len(pending.followers)
            followers, pending.followers = pending.followers, []
            for follower in followers:
                self._replay(follower, outcome)
        self._runner.depended_on(pending, outcome)
        if self._idle is not None and not self._jobs and not self._following and not self._idle.done():
            self._idle.set_result(None)

    def _find_dependency(self, job: Job, id_: str) -> Pending | lifecycle.Outcome | None:
        namespace = self._namespace(job.namespace)
        known = namespace.by_id(id_)
        if isinstance(known, Begun):
            return self._revive(namespace, known)
        return known.outcome if isinstance(known, Ended) else known

    def _revive(self, namespace: Namespace, begun: Begun) -> Pending:
        pending = self._revivals.start(namespace.name, begun)
        namespace.enter(pending)
        return pending

    # Receipts

    def begun(self, request: inbound.Request, client: ports.Client, **facts: Any) -> tuple[journal.Receipt, ...]:
        """What a handler commits together with what it starts; nothing for a command without an identity."""
        return receipts.begun(self._identity(request, client), facts, self._limits, self._now_ms())

    def ended(self, request: inbound.Request, client: ports.Client, handled: ports.Handled) -> tuple[journal.Receipt, ...]:
        """What a handler commits that settles for itself (`Handled.settled`)."""
        data = UNSET if handled.data is UNSET else Raw(lifecycle.encode(handled.data))
        session_id = contracts.subject(request.type, request.session_id, handled.session_id)
        outcome = self._settler.with_version(lifecycle.Outcome(request.type, True, data), session_id)
        return receipts.ended(self._identity(request, client), outcome, self._limits, self._now_ms())

    def _identity(self, request: inbound.Request, client: ports.Client) -> Pending:
        pending = Pending(
            command=request.type, namespace=client.namespace, session_id=request.session_id, fingerprint=request.meaning
        )
        _name(pending, request)
        return pending

    def restore(self, stored: Iterable[journal.Receipt], resolve: ports.Resolve) -> None:
        """Once, at the start. Begun commands are resolved when somebody first asks for their outcome."""
        self._revivals.resolve = resolve
        for name, kept, expires_at_ms in receipts.read(stored, self._now_ms()):
            namespace = self._namespace(name.namespace)
            if name.kind == "id":
                namespace.restore_id(name.value, kept)
            else:
                namespace.restore_key(name.session_id, name.value, kept, expires_at_ms)

    # Leaving

    def disconnected(self, client: ports.Client) -> None:
        """Its commands go on; only its counts are forgotten."""
        self._rates.forget(client.key)

    @property
    def is_idle(self) -> bool:
        """Nothing is under way, and nothing is on its way to the journal."""
        return not self._jobs and not self._following and self._settler.is_idle

    def shut_down(self) -> None:
        """From now on new commands are refused; those under way go on."""
        self._closing = True

    async def drained(self, timeout_s: float) -> bool:
        """Whether all commands under way have ended in this time."""
        if self._jobs or self._following:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle], timeout=timeout_s)
        return not self._jobs and not self._following

    async def close(self, *, answer: bool = True) -> None:
        """Ends what is left. pi-server 8.1: a client gets only an outcome that is stored before, so that the next process
        sends the same. What continues after a restart, and what cannot be stored, gets no outcome: its connection closes, and
        the next process answers. Without `answer` nothing gets one: another node continues all of it."""
        self._closing = True
        self._runner.close()
        left = [job for job in self._jobs if job.stage is not Stage.SETTLING]
        for job in left:
            self._runner.discard(job)
            self._jobs.discard(job)
            if job.fingerprint is not None:
                self._namespace(job.namespace).leave(job, None, self._now_ms())
        revived = self._revivals.stop()
        self._following -= sum(len(pending.followers) for pending in [*left, *revived])
        if answer:
            await asyncio.gather(*(self._give_up(job) for job in left))
        await self._settler.drained()

    async def _give_up(self, job: Job) -> None:
        if job.fingerprint is not None:
            if job.is_run and job.session_id is not None and self._ledger.outlives_us(job.session_id):
                return
            outcome = lifecycle.Outcome(job.command, False, error=strings.SHUTTING_DOWN)
            if not await self._settler.store(job, outcome):
                return
        self._reject(job.client, job.told, job.request.id, strings.SHUTTING_DOWN)
        for follower in job.followers:
            self._reject(follower.client, follower.told, follower.id, strings.SHUTTING_DOWN)

    def measure(self, client: ports.Client) -> metrics.Metrics:
        return metrics.Metrics(
            self._runner.executed,
            self.rejected,
            metrics.RateLimitUsage(
                self._rates.used(client.key, self._now()), self._limits.client_rate, self._limits.session_rate
            ),
            metrics.Stores(
                metrics.Replay(
                    len(self._jobs) + self._following,
                    self._limits.in_flight,
                    sum(namespace.outcome_count for namespace in self._namespaces.values()),
                    self._limits.outcomes,
                    sum(namespace.key_count for namespace in self._namespaces.values()),
                ),
                metrics.Execution(self._runner.lane_count),
            ),
        )


def _name(pending: Pending, request: inbound.Request) -> None:
    if request.id is not None:
        pending.ids.append(request.id)
    if request.idempotency_key is not None:
        pending.keys.append(request.idempotency_key)


def _differs(known: Known, request: inbound.Request) -> bool:
    assert known.fingerprint is not None, "what is known has an identity"
    return known.command != request.type or known.fingerprint.value != request.fingerprint
