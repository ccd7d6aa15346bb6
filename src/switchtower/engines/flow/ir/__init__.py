"""The Flow IR, version 1.0.0: what a flow is, and whether a document is one. Starts nothing.

`parse` is the door: a decoded document becomes a `Flow`, or `InvalidFlow` says everything that is wrong with it. `shape` compares
with the `schema`; `graph`, `switches` and `references` check what a schema cannot say. `inputs` checks what a run is given,
`manifest` keeps flows in a folder, `compiler` makes a flow of YAML. Only `manifest` touches files.
"""

from switchtower.engines.flow.ir.flow import CONTROL_KINDS as CONTROL_KINDS
from switchtower.engines.flow.ir.flow import VERSION as VERSION
from switchtower.engines.flow.ir.flow import CheckedFlow as CheckedFlow
from switchtower.engines.flow.ir.flow import FlowEdge as FlowEdge
from switchtower.engines.flow.ir.flow import FlowNode as FlowNode
from switchtower.engines.flow.ir.flow import FlowProblem as FlowProblem
from switchtower.engines.flow.ir.flow import InvalidFlow as InvalidFlow
from switchtower.engines.flow.ir.flow import RetryPolicy as RetryPolicy
from switchtower.engines.flow.ir.parser import parse_flow as parse_flow
