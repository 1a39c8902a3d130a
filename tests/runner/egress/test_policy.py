"""The policy as text and as a value: what it names, what it refuses, and what a wrong line says."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from debug_server.errors import InvalidInputError
from debug_server.runner.egress.addresses import is_own
from debug_server.runner.egress.policy import Mode, Policy, parse


def refusal(policy: Policy, address: str, port: int = 443, *, name: str | None = None) -> str | None:
    """Why ``policy`` refuses an address on a host that has none of its own."""
    rule = None if name is None else policy.rule_of_name(name, port)
    return policy.refusal(ip_address(address), port, by_name=rule, is_own=lambda _: False)


@pytest.mark.parametrize("word", ["none", "loopback", "open"])
def test_a_word_stands_alone(word: str) -> None:
    """The words for a whole network cannot be mixed with rules, and need no proxy."""
    assert parse([word]).lines() == [word]
    assert not parse([word]).needs_proxy
    with pytest.raises(InvalidInputError, match=f"'{word}' stands alone"):
        parse([word, "index.example:443"])


@pytest.mark.parametrize(
    "line",
    [
        "index.example:443",
        "*.example.com:8443",
        "192.0.2.1:22",
        "10.0.0.0/8:443",
        "[2001:db8::1]:443",
        "[fd00::/8]:5432",
    ],
)
def test_a_rule_survives_its_text(line: str) -> None:
    """Parsing what was formatted gives the same policy."""
    policy = parse([line])
    assert policy.mode is Mode.LISTED
    assert policy.lines() == [line]
    assert parse(policy.lines()) == policy


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("index.example", "no port"),
        ("index.example:", "no port"),
        ("index.example:0", "not a port"),
        ("index.example:65536", "not a port"),
        ("index.example:https", "not a port"),
        ("*:443", "not a host name"),
        ("*.10.0.0.1:443", "no names below"),
        ("a.*.org:443", "not a host name"),
        ("https://index.example:443", "no scheme"),
        ("2130706433:443", "192.0.2.1"),
        ("0177.0.0.1:443", "192.0.2.1"),
        ("10.0.0.1/8:443", "host bits"),
        ("fd00::1:443", "not a host name"),
        ("[fd00::1%eth0]:443", "2001:db8"),
        ("user@index.example:443", "not a host name"),
        ("", "no port"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_right(line: str, says: str) -> None:
    """The error has the line, the fault and the forms that exist."""
    with pytest.raises(InvalidInputError, match=says) as error:
        parse([line])
    assert repr(line) in str(error.value)
    assert "host:port" in str(error.value)


def test_an_empty_policy_is_refused() -> None:
    """Nothing is not the same as `none`."""
    with pytest.raises(InvalidInputError, match="empty"):
        parse([])


def test_names_have_one_form() -> None:
    """Case, a final dot and letters outside ASCII make no difference."""
    assert parse(["Index.EXAMPLE.:443"]) == parse(["index.example:443"])
    assert parse(["bücher.example:443"]).lines() == ["xn--bcher-kva.example:443"]


def test_a_wildcard_is_for_names_below() -> None:
    """`*.host` allows names below it at any depth, not itself and not names that end alike."""
    policy = parse(["*.example.com:443"])
    assert policy.rule_of_name("a.example.com", 443)
    assert policy.rule_of_name("a.b.example.com", 443)
    assert policy.rule_of_name("example.com", 443) is None
    assert policy.rule_of_name("badexample.com", 443) is None
    assert policy.rule_of_name("a.example.com", 80) is None


INDEX = "https://user:secret@nexus.corp.example:8443/simple"


def test_indexes_are_their_hosts_and_nothing_else() -> None:
    """A folder needs no network; a password is nowhere in the policy."""
    policy = parse(["indexes"], indexes=["https://index.example/simple", "file:///srv/wheels", "/srv/wheels", INDEX])
    assert policy.indexes() == [
        "https://index.example:443",
        "https://nexus.corp.example:8443",
    ]
    assert policy.lines() == ["indexes"]
    assert parse(policy.lines(), indexes=policy.indexes()) == policy
    assert policy.rule_of_name("example.com", 443) is None
    assert "secret" not in repr(policy)


def test_an_index_with_an_unknown_scheme_is_refused_without_its_password() -> None:
    """The error names the URL, and not its secret."""
    with pytest.raises(InvalidInputError, match=r"ssh://nexus\.example") as error:
        parse(["indexes"], indexes=["ssh://user:secret@nexus.example/simple"])
    assert "secret" not in str(error.value)


def test_only_an_index_may_be_a_name_of_a_private_address() -> None:
    """Organisations keep their index on private addresses; no index is on the metadata service or on loopback."""
    policy = parse(["indexes", "other.example:443"], indexes=["https://nexus.example/simple"])
    assert refusal(policy, "10.1.2.3", name="nexus.example") is None
    assert refusal(policy, "fd12::1", name="nexus.example") is None
    for address in ("127.0.0.1", "169.254.169.254", "100.100.100.200", "::1", "::ffff:10.1.2.3", "fd00:ec2::254"):
        assert refusal(policy, address, name="nexus.example"), address
    assert refusal(policy, "10.1.2.3", name="other.example")


SPECIAL = [
    *("10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "100.64.0.1", "198.18.0.1"),
    *("127.0.0.1", "127.255.0.1", "0.0.0.0", "0.1.2.3", "169.254.0.1", "169.254.169.254", "169.254.170.2"),
    *("100.100.100.200", "192.0.0.192", "168.63.129.16", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fd20:ce::254", "fec0::1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
    *("2002:7f00:1::1", "2001:0:1::1"),
]


@pytest.mark.parametrize("address", SPECIAL)
def test_a_special_address_must_be_named_by_address(address: str) -> None:
    """A name that resolves to it does not open it, nor does a network that has it by the way; its own address does."""
    policy = parse(["name.example:443", "0.0.0.0/0:443", "[::/0]:443"])
    assert refusal(policy, address, name="name.example")
    assert refusal(policy, address)
    text = f"[{address}]" if ":" in address else address
    assert refusal(parse([f"{text}:443"]), address) is None
    assert refusal(parse([f"{text}:443"]), address, 80)


def test_a_network_within_a_special_range_names_its_addresses() -> None:
    """`10.0.0.0/8` means private addresses; the link-local range does not mean the metadata service in it."""
    policy = parse(["10.0.0.0/8:443", "169.254.0.0/16:443", "name.example:443"])
    assert refusal(policy, "10.9.9.9") is None
    assert refusal(policy, "10.9.9.9", name="name.example") is None
    assert refusal(policy, "169.254.1.1") is None
    assert refusal(policy, "169.254.169.254")


def test_a_public_address_needs_a_rule() -> None:
    """An address that no rule has is refused; a name that is allowed may resolve to any public address."""
    policy = parse(["name.example:443", "198.51.100.0/24:443"])
    assert refusal(policy, "198.51.100.7") is None
    assert refusal(policy, "8.8.8.8")
    assert refusal(policy, "8.8.8.8", name="name.example") is None
    assert refusal(policy, "2606:4700::1", name="name.example") is None


def test_an_address_of_the_host_itself_must_be_named() -> None:
    """A public address that belongs to the host is refused, unless a rule is about just this address."""
    own = ip_address("198.51.100.7")
    policy = parse(["name.example:443", "198.51.100.0/24:443"])
    rule = policy.rule_of_name("name.example", 443)
    for by_name in (rule, None):
        why = policy.refusal(own, 443, by_name=by_name, is_own=lambda _: True)
        assert why is not None
        assert "host itself" in why
    assert parse(["198.51.100.7:443"]).refusal(own, 443, is_own=lambda _: True) is None


def test_the_port_of_our_own_server_must_be_named() -> None:
    """Loopback by name or network opens any port but that of our server."""
    here, ports = ip_address("127.0.0.1"), frozenset({8000})
    policy = parse(["localhost:8000", "localhost:9000", "127.0.0.0/8:8000"])
    for by_name in (policy.rule_of_name("localhost", 8000), None):
        assert policy.refusal(here, 8000, by_name=by_name, own_ports=ports)
    assert policy.refusal(here, 9000, by_name=policy.rule_of_name("localhost", 9000), own_ports=ports) is None
    assert parse(["127.0.0.1:8000"]).refusal(here, 8000, own_ports=ports) is None


def test_the_kernel_knows_its_own_addresses() -> None:
    """Loopback is the host's own; an address that is routed elsewhere, or nowhere, is not."""
    assert is_own(ip_address("127.0.0.1"))
    assert is_own(ip_address("127.9.9.9"))
    assert not is_own(ip_address("198.51.100.77"))
