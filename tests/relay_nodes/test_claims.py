"""Which node has which host: whatever is lost, late or crossed on the way, in the end all say the same."""

from collections import deque

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchtower.cluster.relay_hosts import ClaimChanges, HostClaims, PresenceMessage

NODES, HOSTS = ("n1", "n2", "n3"), ("h1", "h2")


def test_the_other_node_has_what_it_says_and_nothing_else() -> None:
    claims = HostClaims("me")
    assert claims.apply_presence("n1", PresenceMessage(1, here={"h1": 1})) == ClaimChanges(appeared=frozenset({"h1"}))
    assert claims.find_holder("h1") == "n1"
    assert claims.apply_presence("n2", PresenceMessage(2, here={"h1": 2})) == ClaimChanges(), "it was there already"
    assert (claims.find_holder("h1"), sorted(claims.list_holders("h1"))) == ("n2", ["n1", "n2"])
    assert claims.apply_presence("n1", PresenceMessage(3, gone=["h1"])) == ClaimChanges()
    assert claims.apply_presence("n2", PresenceMessage(4, is_all=True)) == ClaimChanges(vanished=frozenset({"h1"}))
    assert "h1" not in claims
    assert claims.find_holder("h1") is None


def test_older_words_do_not_undo_newer_ones() -> None:
    claims = HostClaims("me")
    claims.apply_presence("n1", PresenceMessage(5, gone=["h1"]))
    assert claims.apply_presence("n1", PresenceMessage(4, here={"h1": 4})) == ClaimChanges()
    assert claims.apply_presence("n1", PresenceMessage(5, here={"h1": 4})) == ClaimChanges()
    assert "h1" not in claims


def test_a_node_takes_its_hosts_with_it_and_brings_them_again() -> None:
    claims = HostClaims("me")
    claims.apply_presence("n1", PresenceMessage(1, here={"h1": 1, "h2": 1}))
    claims.apply_presence("n2", PresenceMessage(2, here={"h2": 2}))
    assert claims.remove_node("n1") == ClaimChanges(vanished=frozenset({"h1"}))
    assert claims.remove_node("n1") == ClaimChanges()
    assert claims.apply_presence("n1", PresenceMessage(3, here={"h1": 1}, is_all=True)) == ClaimChanges(
        appeared=frozenset({"h1"})
    )


def test_ours_is_replaced_by_what_came_later_and_not_by_what_came_before() -> None:
    claims = HostClaims("m")
    claims.apply_presence("n", PresenceMessage(7, here={"h1": 7}))
    assert claims.claim("h1") == PresenceMessage(8, here={"h1": 8}), "the count goes on from what was heard"
    assert claims.apply_presence("n", PresenceMessage(9, here={"h1": 7}, is_all=True)).replaced == frozenset()
    assert claims.apply_presence("n", PresenceMessage(10, here={"h1": 10})).replaced == frozenset({"h1"})
    claims.claim("h2")
    assert claims.apply_presence("z", PresenceMessage(11, here={"h2": 11})).replaced == frozenset({"h2"}), (
        "of equals the greater name stays"
    )
    claims.claim("h2")
    assert claims.apply_presence("a", PresenceMessage(12, here={"h2": 12})).replaced == frozenset()


class ClaimSimulation:
    """Nodes that tell each other over lines that deliver in order, when they please, or break."""

    def __init__(self) -> None:
        self.claims = {node: HostClaims(node) for node in NODES}
        self.connected: dict[str, set[str]] = {node: set() for node in NODES}
        """The sockets that are open, by node."""
        self.peers: dict[str, set[str]] = {node: set() for node in NODES}
        self.lines: dict[tuple[str, str], deque[PresenceMessage]] = {
            (one, two): deque() for one in NODES for two in NODES if one != two
        }
        self.believed: dict[str, set[str]] = {node: set() for node in NODES}
        """Which hosts others have, by what each node was told of changes."""
        for one, two in self.lines:
            self.connect_nodes(one, two)

    def connect_nodes(self, one: str, two: str) -> None:
        """The first can speak to the second from now on."""
        if two not in self.peers[one]:
            self.peers[one].add(two)
            self.lines[one, two].append(self.claims[one].make_full_presence(wants_all=True))

    def disconnect_nodes(self, one: str, two: str) -> None:
        if two in self.peers[one]:
            self.peers[one].discard(two)
            self.lines[one, two].clear()
            self.on_change(one, self.claims[one].remove_node(two))

    def connect_host(self, node: str, host: str) -> None:
        self.connected[node].add(host)
        self.send_claim(node, self.claims[node].claim(host))

    def disconnect_host(self, node: str, host: str) -> None:
        if host in self.connected[node]:
            self.connected[node].discard(host)
            self.send_claim(node, self.claims[node].release(host))

    def send_claim(self, node: str, said: PresenceMessage) -> None:
        for other in self.peers[node]:
            self.lines[node, other].append(said)

    def deliver(self, one: str, two: str) -> None:
        if self.lines[one, two]:
            said = self.lines[one, two].popleft()
            if said.wants_all and one in self.peers[two]:
                self.lines[two, one].append(self.claims[two].make_full_presence(wants_all=False))
            if one in self.peers[two]:
                self.on_change(two, self.claims[two].apply_presence(one, said))

    def on_change(self, node: str, change: ClaimChanges) -> None:
        for host in change.replaced:
            self.disconnect_host(node, host)
        assert not change.appeared & self.believed[node]
        assert change.vanished <= self.believed[node]
        self.believed[node] = (self.believed[node] | change.appeared) - change.vanished

    def find_host(self, host: str) -> list[str]:
        return [node for node in NODES if host in self.connected[node]]

    def check_agreement(self, host: str) -> None:
        """Everybody knows where it is."""
        for node in NODES:
            others = [other for other in self.find_host(host) if other != node]
            assert self.claims[node].list_holders(host) == others
            assert (host in self.claims[node]) is (host in self.believed[node]) is bool(others)

    def settle(self) -> None:
        for one, two in self.lines:
            self.connect_nodes(one, two)
        while any(self.lines.values()):
            for one, two in self.lines:
                self.deliver(one, two)


two_nodes = st.permutations(NODES).map(lambda nodes: nodes[:2])
steps = st.one_of(
    st.tuples(st.just("come"), st.sampled_from(NODES), st.sampled_from(HOSTS)),
    st.tuples(st.just("go"), st.sampled_from(NODES), st.sampled_from(HOSTS)),
    st.tuples(st.sampled_from(["deliver", "deliver", "deliver", "connect_nodes", "disconnect_nodes"]), two_nodes),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=60), st.sampled_from(NODES))
def test_in_the_end_each_host_has_one_connection_and_every_node_knows_where(told: list[tuple[str, ...]], last: str) -> None:
    world = ClaimSimulation()
    for step in told:
        match step:
            case ("come", node, host):
                world.connect_host(node, host)
            case ("go", node, host):
                world.disconnect_host(node, host)
            case (verb, (one, two)):
                getattr(world, verb)(one, two)
    world.settle()
    for host in HOSTS:
        # None, if it left one node and came to another before the second had heard of the first: it comes again.
        assert world.find_host(host) in ([], *([node] for node in NODES))
        world.check_agreement(host)
    world.connect_host(last, HOSTS[0])
    world.settle()
    assert world.find_host(HOSTS[0]) == [last], "where it came last, once all have heard of what was before"
    world.check_agreement(HOSTS[0])


@given(st.sets(st.sampled_from(NODES), min_size=1), st.lists(two_nodes, max_size=20))
def test_of_connections_that_come_at_once_one_stays(nodes: set[str], delivered: list[list[str]]) -> None:
    world = ClaimSimulation()
    for node in nodes:
        world.connect_host(node, "h1")
    for one, two in delivered:
        world.deliver(one, two)
    world.settle()
    assert len(world.find_host("h1")) == 1
    world.check_agreement("h1")
