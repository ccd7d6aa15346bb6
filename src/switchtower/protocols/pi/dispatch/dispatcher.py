"""The dispatcher of pi commands: it admits a command, replays it or refuses it, and reports the end of each exactly once.

It does not know what commands do (`ports.Handler`) nor where outcomes are kept (`ports.OutcomeLedger`). Everything happens on one
event loop; `receive` never waits. The outcome of a command that had started when the previous process ended is resolved when a
client first asks for it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import UNSET, Raw

from switchtower.core.ports import journal
from switchtower.protocols.pi import errors, inbound, responses
from switchtower.protocols.pi.dispatch import limits as dispatch_limits
from switchtower.protocols.pi.dispatch import ports, receipts
from switchtower.protocols.pi.dispatch.executor import CommandExecutor
from switchtower.protocols.pi.dispatch.lanes import CommandJob, CommandStage, DuplicateRequest, PendingCommand
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.dispatch.outcomes import CommandNamespace, CompletedCommand, InterruptedCommand, Known
from switchtower.protocols.pi.dispatch.receipts import OutcomeSettler

Revived = Callable[[PendingCommand, responses.CommandOutcome], None]


class InterruptedCommands:
    def __init__(self, settler: OutcomeSettler, revived: Revived) -> None:
        self.resolve: ports.Resolve | None = None
        self._settler = settler
        self._revived = revived
        self._tasks: dict[asyncio.Task[None], PendingCommand] = {}

    def start(self, namespace: str, interrupted: InterruptedCommand) -> PendingCommand:
        pending = PendingCommand(
            command=interrupted.command,
            namespace=namespace,
            session_id=interrupted.session_id,
            fingerprint=interrupted.fingerprint,
            ids=list(interrupted.ids),
            keys=list(interrupted.keys),
            stage=CommandStage.RUNNING,
        )
        task = asyncio.ensure_future(self._resolve(pending, interrupted))
        self._tasks[task] = pending
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return pending

    async def _resolve(self, pending: PendingCommand, interrupted: InterruptedCommand) -> None:
        assert self.resolve is not None, "set before there is anything to revive"
        session_id = interrupted.session_id
        try:
            handled = await self.resolve(interrupted.command, interrupted.session_id, interrupted.facts)
            while handled.rest is not None:
                handled = await handled.rest
            session_id = dispatch_limits.get_versioned_session(interrupted.command, session_id, handled.session_id)
            data = UNSET if handled.data is UNSET else Raw(responses.encode(handled.data))
            outcome = responses.CommandOutcome(interrupted.command, True, data)
            if handled.settled:
                self._end(pending, self._settler.apply_version(outcome, session_id))
                return
        except Exception as problem:
            outcome = responses.CommandOutcome(
                interrupted.command, False, error=errors.describe_failure(problem, interrupted.command)
            )
        pending.stage = CommandStage.SETTLING
        self._settler.settle(pending, session_id, outcome, lambda told: self._end(pending, told))

    def _end(self, pending: PendingCommand, outcome: responses.CommandOutcome) -> None:
        pending.stage = CommandStage.FINISHED
        self._revived(pending, outcome)

    def stop(self) -> list[PendingCommand]:
        """Returns the commands whose outcome was not resolved in time."""
        left = list(self._tasks.values())
        for task in list(self._tasks):
            task.cancel()
        return left


class CommandDispatcher:
    def __init__(
        self,
        handlers: Mapping[str, ports.Handler],
        ledger: ports.OutcomeLedger,
        broadcaster: ports.BroadcastPort,
        *,
        limits: DispatchLimits,
        now_ms: Callable[[], int],
    ) -> None:
        self.rejected = dispatch_limits.RejectionCounts()
        self._broadcaster = broadcaster
        self._ledger = ledger
        self._limits = limits
        self._now_ms = now_ms
        self._settler = OutcomeSettler(ledger, limits, now_ms)
        self._runner = CommandExecutor(
            handlers,
            ledger,
            broadcaster,
            self._settler,
            limits,
            self.rejected,
            find=self._find_dependency,
            finished=self._on_finished,
        )
        self._revivals = InterruptedCommands(self._settler, self._on_revived)
        self._rates = dispatch_limits.RateLimiter(limits)
        self._namespaces: dict[str, CommandNamespace] = {"": CommandNamespace("", limits)}
        self._jobs: set[CommandJob] = set()
        self._following = 0
        self._anonymous_prefix = f"{inbound.ANONYMOUS}{now_ms()}:"
        self._anonymous = 0
        self._closing = False
        self._idle: asyncio.Future[None] | None = None
        self._clock: Callable[[], float] | None = None

    # Admission: pi-server 7.1 and the order of the interop page

    def receive(self, frame: bytes, client: ports.DispatchClient) -> None:
        try:
            request = inbound.parse_request(frame)
        except inbound.PiRequestError as invalid:
            # pi-server 4.2: a command that is not admitted has no lifecycle.
            if self._closing:
                self._refuse_closing(invalid.command, invalid.id, client)
                return
            self.rejected.validation += 1
            client.respond(responses.encode_error_response(invalid.command, invalid.id, invalid.error))
            return
        if (objection := client.find_objection(request)) is not None:
            # Like an invalid request, this one is refused before anything is looked up, so that a replay reveals nothing either.
            self.rejected.validation += 1
            client.respond(responses.encode_error_response(request.type, request.id, objection))
            return
        self.admit(request, client)

    def admit(self, request: inbound.PiRequest, client: ports.DispatchClient) -> None:
        if self._closing:
            self._refuse_closing(request.type, request.id, client)
            return
        id_ = request.id
        if id_ is None:
            self._anonymous += 1
        told = responses.make_lifecycle_data(request, id_ if id_ is not None else f"{self._anonymous_prefix}{self._anonymous}")
        self._broadcaster.broadcast_lifecycle(responses.encode_accepted(told))
        namespace: CommandNamespace | None = None
        if request.meaning is not None:
            namespace = self._get_namespace(client.namespace)
            if self._replay_if_known(request, client, told, namespace):
                return
        if request.type in dispatch_limits.CONTROL:
            exceeded = self._rates.find_control_exceeded(client.key, self._now())
        else:
            exceeded = self._rates.find_exceeded(client.key, request.session_id, self._now())
        if exceeded is not None:
            self._reject_rate(client, told, id_, exceeded)
            return
        if self._is_overloaded():
            self._reject_overload(client, told, id_)
            return
        at_once = self._runner.try_immediate(request, client, told)
        if isinstance(at_once, responses.CommandOutcome):
            if namespace is not None:
                namespace.remember(request, at_once, self._now_ms())
            self._broadcaster.broadcast_lifecycle(responses.encode_finished(told, at_once))
            client.respond(responses.encode_response(at_once, id_))
            return
        job = CommandJob(
            command=request.type,
            namespace=client.namespace,
            session_id=request.session_id,
            fingerprint=request.meaning,
            version=self._settler.get_version(request.session_id),
            request=request,
            client=client,
            told=told,
        )
        if namespace is not None:
            _add_names(job, request)
            namespace.enter(job)
        self._jobs.add(job)
        if at_once is None:
            self._runner.add(job)
        else:
            self._runner.continue_handler(job, at_once)

    def _replay_if_known(
        self, request: inbound.PiRequest, client: ports.DispatchClient, told: responses.LifecycleData, namespace: CommandNamespace
    ) -> bool:
        """pi-server 8: answers with a replay, or with a conflict. The idempotencyKey is checked before the id."""
        known: Known | None = None
        if request.idempotency_key is not None:
            known = namespace.find_by_key(request.session_id, request.idempotency_key, self._now_ms())
            if known is not None and _is_conflict(known, request):
                error = errors.format_conflicting_key(request.idempotency_key, known.command, request.type)
                self.rejected.conflict += 1
                self._reject(client, told, request.id, error)
                return True
        if known is None and request.id is not None:
            known = namespace.find_by_id(request.id)
            if known is not None and _is_conflict(known, request):
                self.rejected.conflict += 1
                error = errors.format_conflicting_id(request.id, known.command, request.type)
                self._reject(client, told, request.id, error)
                return True
        if known is None:
            return False
        if not isinstance(known, CompletedCommand) and self._is_overloaded():
            self._reject_overload(client, told, request.id)
            return True
        if isinstance(known, InterruptedCommand):
            known = self._revive(namespace, known)
        namespace.add_alias(known, request.session_id, request.id, request.idempotency_key, self._now_ms())
        if isinstance(known, PendingCommand):
            self._following += 1
            known.followers.append(DuplicateRequest(request.id, client, told))
        else:
            self._replay(DuplicateRequest(request.id, client, told), known.outcome)
        return True

    def _replay(self, follower: DuplicateRequest, outcome: responses.CommandOutcome) -> None:
        """pi-server 7.4: accepted and finished, never started."""
        self._broadcaster.broadcast_lifecycle(responses.encode_finished(follower.told, outcome, replayed=True))
        if outcome.success:
            told = follower.told
            follower.client.on_replay(told.commandType, None if told.sessionId is UNSET else told.sessionId)
        follower.client.respond(responses.encode_response(outcome, follower.id, replayed=True))

    def _reject(self, client: ports.DispatchClient, told: responses.LifecycleData, id_: str | None, error: str) -> None:
        """Reports the command as accepted and finished, never as started, and keeps no outcome."""
        self._broadcaster.broadcast_lifecycle(responses.encode_rejected(told, error))
        client.respond(responses.encode_error_response(told.commandType, id_, error))

    def _refuse_closing(self, command: str, id_: str | None, client: ports.DispatchClient) -> None:
        self.rejected.shutdown += 1
        client.respond(responses.encode_error_response(command, id_, errors.SHUTTING_DOWN))

    def _is_overloaded(self) -> bool:
        return len(self._jobs) + self._following >= self._limits.in_flight

    def _reject_overload(self, client: ports.DispatchClient, told: responses.LifecycleData, id_: str | None) -> None:
        self.rejected.inFlightLimit += 1
        self._reject(client, told, id_, errors.format_too_many_in_flight(self._limits.in_flight))

    def _reject_rate(
        self, client: ports.DispatchClient, told: responses.LifecycleData, id_: str | None, exceeded: dispatch_limits.Exceeded
    ) -> None:
        if exceeded == "session":
            self.rejected.rateLimit += 1
            limit = self._limits.session_rate
        else:
            self.rejected.globalRateLimit += 1
            limit = self._limits.client_rate * (dispatch_limits.CONTROL_SHARE if exceeded == "control" else 1)
        self._reject(client, told, id_, errors.format_rate_exceeded(limit))

    def _now(self) -> float:
        if self._clock is None:
            self._clock = asyncio.get_running_loop().time
        return self._clock()

    def _get_namespace(self, name: str) -> CommandNamespace:
        namespace = self._namespaces.get(name)
        if namespace is None:
            if len(self._namespaces) >= self._limits.namespaces:
                # The oldest namespace without running commands is dropped; that of the WebSockets never is.
                gone = next((old for old, held in self._namespaces.items() if old and held.is_idle), None)
                if gone is not None:
                    del self._namespaces[gone]
            namespace = self._namespaces[name] = CommandNamespace(name, self._limits)
        return namespace

    # The end of a command

    def _on_finished(self, job: CommandJob, outcome: responses.CommandOutcome) -> None:
        self._jobs.discard(job)
        if job.fingerprint is not None:
            self._get_namespace(job.namespace).leave(job, CompletedCommand(job.fingerprint, outcome), self._now_ms())
        # Interop, Envelope: finished, then the response, then the announcements.
        self._broadcaster.broadcast_lifecycle(responses.encode_finished(job.told, outcome))
        job.client.respond(responses.encode_response(outcome, job.request.id))
        for frame in job.announcements:
            self._broadcaster.broadcast(frame)
        self._notify_waiting(job, outcome)

    def _on_revived(self, pending: PendingCommand, outcome: responses.CommandOutcome) -> None:
        assert pending.fingerprint is not None, "only a command with an identity is revived"
        self._get_namespace(pending.namespace).leave(pending, CompletedCommand(pending.fingerprint, outcome), self._now_ms())
        self._notify_waiting(pending, outcome)

    def _notify_waiting(self, pending: PendingCommand, outcome: responses.CommandOutcome) -> None:
        if pending.followers:
            self._following -= len(pending.followers)
            followers, pending.followers = pending.followers, []
            for follower in followers:
                self._replay(follower, outcome)
        self._runner.release_dependents(pending, outcome)
        if self._idle is not None and not self._jobs and not self._following and not self._idle.done():
            self._idle.set_result(None)

    def _find_dependency(self, job: CommandJob, id_: str) -> PendingCommand | responses.CommandOutcome | None:
        namespace = self._get_namespace(job.namespace)
        known = namespace.find_by_id(id_)
        if isinstance(known, InterruptedCommand):
            return self._revive(namespace, known)
        return known.outcome if isinstance(known, CompletedCommand) else known

    def _revive(self, namespace: CommandNamespace, interrupted: InterruptedCommand) -> PendingCommand:
        pending = self._revivals.start(namespace.name, interrupted)
        namespace.enter(pending)
        return pending

    # Receipts

    def make_start_receipts(
        self, request: inbound.PiRequest, client: ports.DispatchClient, **facts: Any
    ) -> tuple[journal.Receipt, ...]:
        """The receipts that a handler commits together with the run that it starts; empty for a command without an identity."""
        return receipts.make_start_receipts(self._make_pending(request, client), facts, self._limits, self._now_ms())

    def make_end_receipts(
        self, request: inbound.PiRequest, client: ports.DispatchClient, handled: ports.HandlerResult
    ) -> tuple[journal.Receipt, ...]:
        """The receipts that a handler commits when it settles the command itself (`HandlerResult.settled`)."""
        data = UNSET if handled.data is UNSET else Raw(responses.encode(handled.data))
        session_id = dispatch_limits.get_versioned_session(request.type, request.session_id, handled.session_id)
        outcome = self._settler.apply_version(responses.CommandOutcome(request.type, True, data), session_id)
        return receipts.make_end_receipts(self._make_pending(request, client), outcome, self._limits, self._now_ms())

    def _make_pending(self, request: inbound.PiRequest, client: ports.DispatchClient) -> PendingCommand:
        pending = PendingCommand(
            command=request.type, namespace=client.namespace, session_id=request.session_id, fingerprint=request.meaning
        )
        _add_names(pending, request)
        return pending

    def restore(self, stored: Iterable[journal.Receipt], resolve: ports.Resolve) -> None:
        """Restores stored receipts, once, at the start. Started commands are resolved when a client first asks for their
        outcome."""
        self._revivals.resolve = resolve
        for name, kept, expires_at_ms in receipts.decode_receipts(stored, self._now_ms()):
            namespace = self._get_namespace(name.namespace)
            if name.kind == "id":
                namespace.restore_id(name.value, kept)
            else:
                namespace.restore_key(name.session_id, name.value, kept, expires_at_ms)

    # Shutdown

    def forget_client(self, client: ports.DispatchClient) -> None:
        """The client's commands continue; only its rate counts are dropped."""
        self._rates.forget(client.key)

    @property
    def is_idle(self) -> bool:
        """No command is running, and no outcome is being written to the journal."""
        return not self._jobs and not self._following and self._settler.is_idle

    def shut_down(self) -> None:
        """New commands are refused from now on; running commands continue."""
        self._closing = True

    async def wait_until_drained(self, timeout_s: float) -> bool:
        """Returns whether all running commands have ended within this time."""
        if self._jobs or self._following:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle], timeout=timeout_s)
        return not self._jobs and not self._following

    async def close(self, *, answer: bool = True) -> None:
        """Ends the remaining commands. pi-server 8.1: a client gets only an outcome that is stored before, so that the next
        process sends the same. A command that continues after a restart, or whose outcome cannot be stored, gets none: its
        connection closes, and the next process answers. Without `answer` no command gets an outcome: another node continues
        them."""
        self._closing = True
        self._runner.close()
        left = [job for job in self._jobs if job.stage is not CommandStage.SETTLING]
        for job in left:
            self._runner.discard(job)
            self._jobs.discard(job)
            if job.fingerprint is not None:
                self._get_namespace(job.namespace).leave(job, None, self._now_ms())
        revived = self._revivals.stop()
        self._following -= sum(len(pending.followers) for pending in [*left, *revived])
        if answer:
            await asyncio.gather(*(self._give_up(job) for job in left))
        await self._settler.wait_until_drained()

    async def _give_up(self, job: CommandJob) -> None:
        if job.fingerprint is not None:
            if job.is_run and job.session_id is not None and self._ledger.is_run_durable(job.session_id):
                return
            outcome = responses.CommandOutcome(job.command, False, error=errors.SHUTTING_DOWN)
            if not await self._settler.store(job, outcome):
                return
        self._reject(job.client, job.told, job.request.id, errors.SHUTTING_DOWN)
        for follower in job.followers:
            self._reject(follower.client, follower.told, follower.id, errors.SHUTTING_DOWN)

    def collect_metrics(self, client: ports.DispatchClient) -> dispatch_limits.DispatchMetrics:
        return dispatch_limits.DispatchMetrics(
            self._runner.executed,
            self.rejected,
            dispatch_limits.RateLimitUsage(
                self._rates.get_usage(client.key, self._now()), self._limits.client_rate, self._limits.session_rate
            ),
            dispatch_limits.StoreCounts(
                dispatch_limits.ReplayCounts(
                    len(self._jobs) + self._following,
                    self._limits.in_flight,
                    sum(namespace.outcome_count for namespace in self._namespaces.values()),
                    self._limits.outcomes,
                    sum(namespace.key_count for namespace in self._namespaces.values()),
                ),
                dispatch_limits.ExecutionCounts(self._runner.lane_count),
            ),
        )


def _add_names(pending: PendingCommand, request: inbound.PiRequest) -> None:
    if request.id is not None:
        pending.ids.append(request.id)
    if request.idempotency_key is not None:
        pending.keys.append(request.idempotency_key)


def _is_conflict(known: Known, request: inbound.PiRequest) -> bool:
    assert known.fingerprint is not None, "what is known has an identity"
    return known.command != request.type or known.fingerprint.value != request.fingerprint
