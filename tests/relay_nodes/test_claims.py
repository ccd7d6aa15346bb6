"""Which node has which host: whatever is lost, late or crossed on the way, in the end all say the same."""

from collections import deque

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchtower.protocols.relay.nodes.claims import Change, Claims
from switchtower.protocols.relay.nodes.letters import Presence

NODES, HOSTS = ("n1", "n2", "n3"), ("h1", "h2")


def test_the_other_node_has_what_it_says_and_nothing_else() -> None:
    claims = Claims("me")
    assert claims.heard("n1", Presence(1, here={"h1": 1})) == Change(appeared=frozenset({"h1"}))
    assert claims.holder("h1") == "n1"
    assert claims.heard("n2", Presence(2, here={"h1": 2})) == Change(), "it was there already"
    assert (claims.holder("h1"), sorted(claims.holders("h1"))) == ("n2", ["n1", "n2"])
    assert claims.heard("n1", Presence(3, gone=["h1"])) == Change()
    assert claims.heard("n2", Presence(4, is_all=True)) == Change(vanished=frozenset({"h1"}))
    assert "h1" not in claims
    assert claims.holder("h1") is None


def test_older_words_do_not_undo_newer_ones() -> None:
    claims = Claims("me")
    claims.heard("n1", Presence(5, gone=["h1"]))
    assert claims.heard("n1", Presence(4, here={"h1": 4})) == Change()
    assert claims.heard("n1", Presence(5, here={"h1": 4})) == Change()
    assert "h1" not in claims


def test_a_node_takes_its_hosts_with_it_and_brings_them_again() -> None:
    claims = Claims("me")
    claims.heard("n1", Presence(1, here={"h1": 1, "h2": 1}))
    claims.heard("n2", Presence(2, here={"h2": 2}))
    assert claims.forget("n1") == Change(vanished=frozenset({"h1"}))
    assert claims.forget("n1") == Change()
    assert claims.heard("n1", Presence(3, here={"h1": 1}, is_all=True)) == Change(appeared=frozenset({"h1"}))


def test_ours_is_replaced_by_what_came_later_and_not_by_what_came_before() -> None:
    claims = Claims("m")
    claims.heard("n", Presence(7, here={"h1": 7}))
    assert claims.took("h1") == Presence(8, here={"h1": 8}), "the count goes on from what was heard"
    assert claims.heard("n", Presence(9, here={"h1": 7}, is_all=True)).replaced == frozenset()
    assert claims.heard("n", Presence(10, here={"h1": 10})).replaced == frozenset({"h1"})
    claims.took("h2")
    assert claims.heard("z", Presence(11, here={"h2": 11})).replaced == frozenset({"h2"}), "of equals the greater name stays"
    claims.took("h2")
    assert claims.heard("a", Presence(12, here={"h2": 12})).replaced == frozenset()


class World:
    """Nodes that tell each other over lines that deliver in order, when they please, or break."""

    def __init__(self) -> None:
        self.claims = {node: Claims(node) for node in NODES}
        self.connected: dict[str, set[str]] = {node: set() for node in NODES}
        """The sockets that are open, by node."""
        self.peers: dict[str, set[str]] = {node: set() for node in NODES}
        self.lines: dict[tuple[str, str], deque[Presence]] = {(one, two): deque() for one in NODES for two in NODES if one != two}
        self.believed: dict[str, set[str]] = {node: set() for node in NODES}
        """Which hosts others have, by what each node was told of changes."""
        for one, two in self.lines:
            self.meet(one, two)

    def meet(self, one: str, two: str) -> None:
        """The first can speak to the second from now on."""
        if two not in self.peers[one]:
            self.peers[one].add(two)
            self.lines[one, two].append(self.claims[one].everything(wants_all=True))

    def part(self, one: str, two: str) -> None:
        if two in self.peers[one]:
            self.peers[one].discard(two)
            self.lines[one, two].clear()
            self.changed(one, self.claims[one].forget(two))

    def come(self, node: str, host: str) -> None:
        self.connected[node].add(host)
        self.tell(node, self.claims[node].took(host))

    def go(self, node: str, host: str) -> None:
        if host in self.connected[node]:
            self.connected[node].discard(host)
            self.tell(node, self.claims[node].lost(host))

    def tell(self, node: str, said: Presence) -> None:
        for other in self.peers[node]:
            self.lines[node, other].append(said)

    def deliver(self, one: str, two: str) -> None:
        if self.lines[one, two]:
            said = self.lines[one, two].popleft()
            if said.wants_all and one in self.peers[two]:
                self.lines[two, one].append(self.claims[two].everything(wants_all=False))
            if one in self.peers[two]:
                self.changed(two, self.claims[two].heard(one, said))

    def changed(self, node: str, change: Change) -> None:
        for host in change.replaced:
            self.go(node, host)
        assert not change.appeared & self.believed[node]
        assert change.vanished <= self.believed[node]
        self.believed[node] = (self.believed[node] | change.appeared) - change.vanished

    def where(self, host: str) -> list[str]:
        return [node for node in NODES if host in self.connected[node]]

    def agree(self, host: str) -> None:
        """Everybody knows where it is."""
        for node in NODES:
            others = [other for other in self.where(host) if other != node]
            assert self.claims[node].holders(host) == others
            assert (host in self.claims[node]) is (host in self.believed[node]) is bool(others)

    def settle(self) -> None:
        for one, two in self.lines:
            self.meet(one, two)
        while any(self.lines.values()):
            for one, two in self.lines:
                self.deliver(one, two)


two_nodes = st.permutations(NODES).map(lambda nodes: nodes[:2])
steps = st.one_of(
    st.tuples(st.just("come"), st.sampled_from(NODES), st.sampled_from(HOSTS)),
    st.tuples(st.just("go"), st.sampled_from(NODES), st.sampled_from(HOSTS)),
    st.tuples(st.sampled_from(["deliver", "deliver", "deliver", "meet", "part"]), two_nodes),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=60), st.sampled_from(NODES))
def test_in_the_end_each_host_has_one_connection_and_every_node_knows_where(told: list[tuple[str, ...]], last: str) -> None:
    world = World()
    for step in told:
        match step:
            case ("come", node, host):
                world.come(node, host)
            case ("go", node, host):
                world.go(node, host)
            case (verb, (one, two)):
                getattr(world, verb)(one, two)
    world.settle()
    for host in HOSTS:
        # None, if it left one node and came to another before the second had heard of the first: it comes again.
        assert world.where(host) in ([], *([node] for node in NODES))
        world.agree(host)
    world.come(last, HOSTS[0])
    world.settle()
    assert world.where(HOSTS[0]) == [last], "where it came last, once all have heard of what was before"
    world.agree(HOSTS[0])


@given(st.sets(st.sampled_from(NODES), min_size=1), st.lists(two_nodes, max_size=20))
def test_of_connections_that_come_at_once_one_stays(nodes: set[str], delivered: list[list[str]]) -> None:
    world = World()
    for node in nodes:
        world.come(node, "h1")
    for one, two in delivered:
        world.deliver(one, two)
    world.settle()
    assert len(world.where("h1")) == 1
    world.agree("h1")
