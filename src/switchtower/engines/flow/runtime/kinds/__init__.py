"""The step kinds. A kind is one class with `run`. `catalog` lists the kinds at next to no cost; `registry` loads a kind when a
flow needs it, and describes what each does and takes; `port` has the interfaces that a kind works with.

Plugins add kinds as entry points of the group `switchtower.flow_kinds`: the name is the kind's, the value a class that is made
without arguments. They cannot replace our own kinds.
"""
