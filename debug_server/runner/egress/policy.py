"""The network policy of a command: what it may reach, as a value with a text form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Network, ip_network
from urllib.parse import urlsplit

from debug_server.errors import InvalidInputError
from debug_server.runner.egress.addresses import LOOPBACK, PRIVATE, Network, is_own, special_range
from debug_server.runner.egress.names import Address, Host, HostError, parse_authority, parse_port


class Mode(StrEnum):
    """Which kind of network a command has; ``indexes`` and rules are both ``listed``."""

    NONE = "none"
    LOOPBACK = "loopback"  # a namespace of its own, with ``lo`` alone
    LISTED = "listed"  # what the rules name, through the proxy
    OPEN = "open"


INDEXES = "indexes"
_WORDS = (Mode.NONE, Mode.LOOPBACK, Mode.OPEN)
_FORMS = "none, loopback, indexes, open, host:port, *.host:port, address:port or network/bits:port"
_SCHEMES = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """Allows a DNS name, or every name below it, at one port."""

    name: str
    port: int
    below: bool = False  # the names below it, and not itself
    reach: str | None = None  # the kind of special range that the name may resolve to, besides public addresses

    def matches(self, name: str) -> bool:
        """Whether the rule is about this name."""
        return name.endswith(f".{self.name}") if self.below else name == self.name

    def __str__(self) -> str:
        return f"{'*.' if self.below else ''}{self.name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRule:
    """Allows an address, or a network of addresses, at one port."""

    network: Network
    port: int

    def matches(self, address: Address) -> bool:
        """Whether the rule is about this address."""
        return address.version == self.network.version and address in self.network

    def names(self, address: Address, span: Network | None = None) -> bool:
        """Whether the rule means just this address, or lies within ``span``: 0.0.0.0/0 does not name 10.0.0.1."""
        if not self.matches(address):
            return False
        if self.network.prefixlen == self.network.max_prefixlen:
            return True
        return span is not None and self.network.prefixlen >= span.prefixlen

    def __str__(self) -> str:
        whole = self.network.prefixlen == self.network.max_prefixlen
        text = str(self.network.network_address if whole else self.network)
        return f"[{text}]:{self.port}" if isinstance(self.network, IPv6Network) else f"{text}:{self.port}"


Rule = NameRule | NetworkRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a command may reach."""

    mode: Mode
    rules: tuple[Rule, ...] = ()  # the lines of ``listed``
    with_indexes: bool = False  # ``indexes`` is one of the lines
    index_rules: tuple[Rule, ...] = ()  # what that line means here

    @property
    def needs_proxy(self) -> bool:
        """Whether a command with this policy needs the proxy beside it."""
        return self.mode is Mode.LISTED

    def indexes(self) -> list[str]:
        """The origins of the package indexes, such as ``https://index.example:443``."""
        return [f"https://{rule}" for rule in self.index_rules]

    def lines(self) -> list[str]:
        """The policy as text; ``parse`` makes the same policy of it, given ``indexes()``."""
        if self.mode is not Mode.LISTED:
            return [self.mode.value]
        return [*([INDEXES] if self.with_indexes else []), *map(str, self.rules)]

    def all_rules(self) -> tuple[Rule, ...]:
        """Its own rules and those of the package indexes."""
        return self.rules + self.index_rules

    def rule_of_name(self, name: str, port: int | None = None) -> NameRule | None:
        """The rule that allows a name, at this port or at any; the one with the widest reach."""
        found = [
            rule
            for rule in self.all_rules()
            if isinstance(rule, NameRule) and rule.matches(name) and port in (None, rule.port)
        ]
        return max(found, key=lambda rule: rule.reach is not None, default=None)

    def refusal(
        self,
        address: Address,
        port: int,
        *,
        by_name: NameRule | None = None,
        own_ports: frozenset[int] = frozenset(),
        is_own: Callable[[Address], bool] = is_own,
    ) -> str | None:
        """Why this address may not be reached; None if it may. ``by_name``: the rule of the name that resolved to it.

        ``own_ports`` are those of our own server: on this host, only a rule for that very address opens them.
        """
        rules = [rule for rule in self.all_rules() if isinstance(rule, NetworkRule) and rule.port == port]
        if by_name is None and not any(rule.matches(address) for rule in rules):
            return "it is not in the policy"
        if any(rule.names(address) for rule in rules):
            return None
        special = special_range(address)
        if special is not None:
            span, kind = special
            if (by_name is None or by_name.reach != kind) and not any(rule.names(address, span) for rule in rules):
                return f"it is a {kind} address, which the policy must name by address"
        if is_own(address) and (port in own_ports or special is None or special[1] != LOOPBACK):
            return "it is an address of the host itself, which the policy must name by address"
        return None


def parse(lines: Iterable[str], *, indexes: Iterable[str] = ()) -> Policy:
    """A policy from its lines.

    ``indexes``: URLs of package indexes, and of the hosts where they keep their files, from the operator's settings and
    never from a commit: ``runner.environments.index_hosts`` finds them. Such a name may resolve to a private
    address, because many organisations keep their index there; any other name may not.
    """
    found = [line.strip() for line in lines]
    for word in _WORDS:
        if word in found:
            if set(found) != {word.value}:
                raise InvalidInputError(f"network policy: {word.value!r} stands alone: remove the other lines")
            return Policy(mode=word)
    if not found:
        raise InvalidInputError(f"network policy: it is empty: write one or more of {_FORMS}")
    rules = tuple(dict.fromkeys(_rule(line) for line in found if line != INDEXES))
    if INDEXES not in found:
        return Policy(mode=Mode.LISTED, rules=rules)
    index_rules = tuple(dict.fromkeys(rule for url in indexes if (rule := _index_rule(url)) is not None))
    return Policy(mode=Mode.LISTED, rules=rules, with_indexes=True, index_rules=index_rules)


def _rule(line: str) -> Rule:
    try:
        if "://" in line:
            raise HostError("a rule has no scheme and no path")
        host, colon, port = line.rpartition(":")
        if "/" in host and colon:
            return NetworkRule(network=ip_network(host.strip("[]")), port=parse_port(port))
        if line.startswith("*."):
            name, number = parse_authority(line[2:])
            if not isinstance(name, str):
                raise HostError("an address has no names below it")
            return NameRule(name=name, port=number, below=True)
        return _exact_rule(*parse_authority(line))
    except ValueError as error:  # HostError is one
        raise InvalidInputError(f"network policy: {line!r}: {error}: write {_FORMS}") from None


def _exact_rule(host: Host, port: int, reach: str | None = None) -> Rule:
    if isinstance(host, str):
        return NameRule(name=host, port=port, reach=LOOPBACK if host == "localhost" else reach)
    return NetworkRule(network=ip_network(host), port=port)


def _index_rule(url: str) -> Rule | None:
    """The rule that a package index needs; none for a local folder."""
    try:
        parts = urlsplit(url.strip())
        if parts.scheme in ("", "file"):
            return None
        if parts.scheme not in _SCHEMES:
            raise InvalidInputError(f"package index {_without_password(url)!r}: write http:// or https://")
        return _exact_rule(*parse_authority(parts.netloc.rpartition("@")[2], _SCHEMES[parts.scheme]), PRIVATE)
    except HostError as error:
        raise InvalidInputError(f"package index {_without_password(url)!r}: {error}") from None


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]
