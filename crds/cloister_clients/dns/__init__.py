"""DNS: what the servers that own a zone say, past every cache."""

from cloister_clients.dns.authoritative import AuthoritativeDns
from cloister_clients.dns.messages import Kind, Labels, labels_of, text_of
from cloister_clients.dns.queries import DnsError, Resolver, Server
from cloister_clients.dns.settings import DnsSettings

__all__ = [
    "AuthoritativeDns",
    "DnsError",
    "DnsSettings",
    "Kind",
    "Labels",
    "Resolver",
    "Server",
    "labels_of",
    "text_of",
]
