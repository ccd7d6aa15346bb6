"""How the server itself is: figures and health (pi-server 17.1, 21)."""

from msgspec import structs

from switchtower.core.workshop import BreakerState
from switchtower.protocols.pi.handlers.hall import HandlerContext, Client
from switchtower.protocols.pi.order import inbound, ports


class ServerHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    def get_metrics(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        hall = self._context
        assert hall.dispatcher is not None
        own = hall.dispatcher.collect_metrics(client)
        stores = structs.asdict(own.stores)
        stores["version"] = {"sessionCount": len(hall.sessions)}
        stores["extensionUI"] = {"pendingCount": hall.sessions.pending_count}
        return ports.HandlerResult(
            data={
                "sessionCount": len(hall.sessions),
                "connectionCount": hall.connections(),
                "totalCommandsExecuted": own.totalCommandsExecuted,
                "commandsRejected": own.commandsRejected,
                "rateLimitUsage": own.rateLimitUsage,
                "stores": stores,
                "circuitBreakers": [self._convert_breaker(state) for state in hall.service.host_services.list_breakers()],
                "bashCircuitBreaker": hall.bash_breaker.collect_metrics(),
            }
        )

    def health_check(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        open_providers = [
            state.provider for state in self._context.service.host_services.list_breakers() if state.state == "open"
        ]
        bash_open = self._context.bash_breaker.is_open
        issues = [f"Circuit breaker open: {provider}" for provider in open_providers]
        if bash_open:
            issues.append("Bash circuit breaker open")
        return ports.HandlerResult(
            data={
                "healthy": not issues,
                "issues": issues,
                "hasOpenCircuit": bool(open_providers),
                "hasOpenBashCircuit": bash_open,
            }
        )

    def _convert_breaker(self, state: BreakerState) -> dict[str, object]:
        return {
            "providerName": state.provider,
            "state": state.state,
            "failureCount": state.failures,
            "lastFailureTime": state.last_failure_ms,
            "totalCalls": state.calls,
            "totalRejected": state.rejected + self._context.prompts_refused[state.provider],
            "totalSuccesses": state.successes,
            "totalFailures": state.failed,
            "avgLatencyMs": state.average_ms,
        }
