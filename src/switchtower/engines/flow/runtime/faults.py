"""The documented name of `failures` for packages with step kinds (docs/flows.md). Our own modules import `failures`."""

from switchtower.engines.flow.runtime.failures import StepFailed

__all__ = ["StepFailed"]
