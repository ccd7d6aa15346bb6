"""The Flow IR, version 1.0.0: the model of a flow, and the check of a document. It starts nothing.

`parse_flow` is the entry point: a decoded document becomes a `CheckedFlow`, or `InvalidFlow` lists everything that is wrong with
it. `schema` checks the shape; `graph` and `references` check what a schema cannot express. `parser` also checks the inputs of a
run, `manifest` keeps flows in a folder, and `compiler` turns YAML into a flow. Only `manifest` accesses files.
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
