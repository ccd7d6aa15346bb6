"""What steps can do. A kind is one class with `run`. `catalogue` says which there are, at next to no cost; `registry` loads one
when a flow wants it; `port` is what a kind is given.

Plugins add kinds as entry points of the group `switchtower.flow_kinds`: the name is the kind's, the value a class that is made
without arguments. They cannot take the place of ours. `descriptions` says what each kind does and takes.
"""
