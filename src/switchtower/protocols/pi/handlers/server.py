"""How the server itself is: figures and health (pi-server 17.1, 21)."""

from msgspec import structs

from switchtower.core.workshop import BreakerState
from switchtower.protocols.pi.handlers.hall import Hall, Visitor
from switchtower.protocols.pi.order import inbound, ports


class ServerHandlers:
    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def get_metrics(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        hall = self._hall
        assert hall.conductor is not None
        own = hall.conductor.measure(visitor)
        stores = structs.asdict(own.stores)
        stores["version"] = {"sessionCount": len(hall.roster)}
        stores["extensionUI"] = {"pendingCount": hall.roster.questions}
        return ports.Handled(
            data={
                "sessionCount": len(hall.roster),
                "connectionCount": hall.connections(),
                "totalCommandsExecuted": own.totalCommandsExecuted,
                "commandsRejected": own.commandsRejected,
                "rateLimitUsage": own.rateLimitUsage,
                "stores": stores,
                "circuitBreakers": [self._breaker(state) for state in hall.tower.workshop.breakers()],
                "bashCircuitBreaker": hall.bash_breaker.measure(),
            }
        )

    def health_check(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        open_providers = [state.provider for state in self._hall.tower.workshop.breakers() if state.state == "open"]
        bash_open = self._hall.bash_breaker.is_open
        issues = [f"Circuit breaker open: {provider}" for provider in open_providers]
        if bash_open:
            issues.append("Bash circuit breaker open")
        return ports.Handled(
            data={
                "healthy": not issues,
                "issues": issues,
                "hasOpenCircuit": bool(open_providers),
                "hasOpenBashCircuit": bash_open,
            }
        )

    def _breaker(self, state: BreakerState) -> dict[str, object]:
        return {
            "providerName": state.provider,
            "state": state.state,
            "failureCount": state.failures,
            "lastFailureTime": state.last_failure_ms,
            "totalCalls": state.calls,
            "totalRejected": state.rejected + self._hall.prompts_refused[state.provider],
            "totalSuccesses": state.successes,
            "totalFailures": state.failed,
            "avgLatencyMs": state.average_ms,
        }
