"""A stand-in of Stripe on a socket, as its API of 2026-10-28 and its webhooks are documented.

It keeps customers, invoices with their payments, charges, refunds and subscriptions, lists them
newest first in pages, accepts only the documented parameters of each list, and signs events. An
invoice does not name its charge nor a charge its invoice: invoice payments join the two, and come
with an invoice only when requested (``expand``).
"""

import contextlib
import hashlib
import hmac
import itertools
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["Stripe", "stripe_stand_in"]

VERSION = "2026-10-28.endive"
PAGING = {"limit", "starting_after", "expand[0]"}
PARAMETERS = {
    "/v1/invoices": {"customer", "status"},
    "/v1/charges": {"customer"},
    "/v1/subscriptions": {"customer", "status"},
    "/v1/invoice_payments": {"invoice"},
}
"""Parameters of each list other than those of pagination."""
SHOWN = 2
"""Maximum of payments within an invoice; others are in a list of their own."""
Object = dict[str, Any]


@dataclass
class Stripe:
    """An account at Stripe."""

    key: str = "rk_made_up_for_tests"
    """The secret key of the account."""
    webhook_secret: str = "whsec_made_up_for_tests"
    """Secret that signs events."""
    customers: set[str] = field(default_factory=set)
    """Customers."""
    objects: dict[str, list[Object]] = field(default_factory=dict)
    """Path of a list -> its objects, oldest first."""
    fault: Reply | None = None
    """Response to every request; None = the usual ones."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """Event that responses wait for; a test clears it to make Stripe slow."""
    served: HttpServer | None = None
    """The server; None before it runs."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Counter for identifiers."""

    def __post_init__(self) -> None:
        """Start without delay."""
        self.go_on.set()

    @property
    def base(self) -> str:
        """Base address for the settings."""
        assert self.served is not None
        return self.served.base

    def add(self, path: str, prefix: str, **fields: Any) -> Object:
        """Store an object."""
        number = next(self.numbers)
        made = {"id": f"{prefix}_{number:06}", "created": 1_800_000_000 + number, **fields}
        self.objects.setdefault(f"/v1/{path}", []).append(made)
        return made

    def customer(self) -> str:
        """Create a customer with a unique account, since other tests' facades see it."""
        name = f"cus_{uuid.uuid4().hex[:14]}"
        self.customers.add(name)
        return name

    def invoice(self, customer: str, total: int = 1999, **fields: Any) -> Object:
        """Create an open invoice."""
        number = f"ACME-{next(self.numbers):04}"
        return self.add(
            "invoices",
            "in",
            **{
                "object": "invoice",
                "customer": customer,
                "status": "open",
                "total": total,
                "amount_due": total,
                "amount_paid": 0,
                "currency": "usd",
                "description": None,
                "number": number,
                "hosted_invoice_url": f"https://invoice.example.test/{number}",
                "invoice_pdf": None,
                **fields,
            },
        )

    def charge(self, customer: str, amount: int = 500, **fields: Any) -> Object:
        """Charge a customer, through a payment intent as Stripe does."""
        return self.add(
            "charges",
            "ch",
            **{
                "object": "charge",
                "customer": customer,
                "status": "succeeded",
                "amount": amount,
                "amount_captured": amount,
                "amount_refunded": 0,
                "captured": True,
                "refunded": False,
                "currency": "usd",
                "description": None,
                "payment_intent": f"pi_{next(self.numbers):06}",
                **fields,
            },
        )

    def pay(self, invoice: Object, **fields: Any) -> Object:
        """Pay an invoice, or try to (``status="failed"``), and return the charge."""
        charge = self.charge(invoice["customer"], invoice["total"], **fields)
        intent = charge["payment_intent"]
        payment = {"type": "charge", "charge": charge["id"]}
        if intent is not None:
            payment = {"type": "payment_intent", "payment_intent": intent}
        paid = charge["status"] == "succeeded"
        self.add(
            "invoice_payments",
            "inpay",
            object="invoice_payment",
            invoice=invoice["id"],
            payment=payment,
            status="paid" if paid else "open",
        )
        if paid:
            invoice.update(status="paid", amount_paid=invoice["total"])
        return charge

    def refund(self, charge: Object, amount: int) -> Object:
        """Refund a charge."""
        charge["amount_refunded"] += amount
        charge["refunded"] = charge["amount_refunded"] == charge["amount"]
        intent = charge["payment_intent"]
        return self.add(
            "refunds",
            "re",
            object="refund",
            amount=amount,
            charge=charge["id"],
            payment_intent=intent,
            status="succeeded",
        )

    def subscribe(self, customer: str, *products: str, status: str = "active") -> Object:
        """Create a subscription."""
        items = [
            {"object": "subscription_item", "price": {"object": "price", "product": product}}
            for product in products
        ]
        return self.add(
            "subscriptions",
            "sub",
            object="subscription",
            customer=customer,
            status=status,
            items={"object": "list", "data": items, "has_more": False},
        )

    def customer_requests(self, *customers: str) -> list[Request]:
        """Return the requests about customers.

        A facade queries every Organization, including those of other tests.
        """
        asked = self.served.requests if self.served is not None else []
        return [each for each in asked if each.parameters.get("customer", [""])[-1] in customers]

    def event(self, kind: str, about: Object) -> bytes:
        """Create an event."""
        number = next(self.numbers)
        document = {
            "id": f"evt_{number:06}",
            "object": "event",
            "api_version": VERSION,
            "created": 1_800_000_000 + number,
            "livemode": False,
            "type": kind,
            "data": {"object": about},
        }
        return json.dumps(document, indent=2).encode()

    def signature(self, body: bytes, *, age: float = 0, secret: str = "") -> str:
        """Sign a body as Stripe does, with additional signatures of an old scheme and secret.

        Parameters
        ----------
        age
            Seconds since it was signed.
        secret
            Signing secret; empty = the secret of the endpoint.
        """
        at = int(time.time() - age)  # noqa: TID251 - Stripe has a clock of its own
        key = (secret or self.webhook_secret).encode()
        signed = hmac.new(key, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        return f"t={at},v1={'0' * 64},v1={signed},v0={'1' * 64}"

    async def deliver(
        self, client: httpx.AsyncClient, body: bytes, signature: str = ""
    ) -> httpx.Response:
        """Deliver an event to a facade."""
        return await client.post(
            "/api/webhooks/stripe",
            content=body,
            headers={
                "content-type": "application/json; charset=utf-8",
                "stripe-signature": signature or self.signature(body),
            },
        )

    def respond(self, request: Request) -> Reply:
        """Return the response to a request."""
        self.go_on.wait(60)
        if self.fault is not None:
            return self.fault
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "Invalid API Key provided: rk_made_**********ests", None)
        assert request.headers["stripe-version"] == VERSION
        allowed = PARAMETERS.get(request.path)
        if request.method != "GET" or allowed is None:
            message = f"Unrecognized request URL ({request.method}: {request.path})."
            return error(404, message, None)
        asked = {name: values[-1] for name, values in request.parameters.items()}
        unknown = set(asked) - allowed - PAGING
        if unknown:
            name = min(unknown)
            return error(400, f"Received unknown parameter: {name}", "parameter_unknown", name)
        return self.listed(request.path, asked)

    def listed(self, path: str, asked: dict[str, str]) -> Reply:
        """Return a page of a list."""
        customer = asked.get("customer")
        if customer is not None and customer not in self.customers:
            message = f"No such customer: '{customer}'"
            return error(400, message, "resource_missing", "customer")
        limit = int(asked.get("limit", 10))
        if not 1 <= limit <= 100:
            return error(400, "Invalid integer: limit", "parameter_invalid_integer", "limit")
        found = [each for each in reversed(self.objects.get(path, [])) if fits(each, asked)]
        if path == "/v1/subscriptions" and "status" not in asked:
            found = [each for each in found if each["status"] != "canceled"]
        after = asked.get("starting_after")
        if after is not None:
            places = [n for n, each in enumerate(found) if each["id"] == after]
            if not places:
                return error(400, f"No such object: '{after}'", "resource_missing", "id")
            found = found[places[0] + 1 :]
        page = found[:limit]
        if asked.get("expand[0]") == "data.payments":
            page = [{**each, "payments": self.payments_of(each)} for each in page]
        return json_reply(200, listing(path, page, has_more=len(found) > limit))

    def payments_of(self, invoice: Object) -> Object:
        """Return the payments within an invoice."""
        path = "/v1/invoice_payments"
        asked = {"invoice": invoice["id"]}
        found = [each for each in reversed(self.objects.get(path, [])) if fits(each, asked)]
        return listing(path, found[:SHOWN], has_more=len(found) > SHOWN)


def fits(found: Object, asked: dict[str, str]) -> bool:
    """Return whether an object matches the filters of a list."""
    return all(
        found[name] == asked[name] for name in ("customer", "invoice", "status") if name in asked
    )


def listing(path: str, page: list[Object], *, has_more: bool) -> Object:
    """Return a list object."""
    return {"object": "list", "url": path, "has_more": has_more, "data": page}


def error(status: int, message: str, code: str | None, parameter: str | None = None) -> Reply:
    """Return an error response."""
    problem = {"type": "invalid_request_error", "message": message}
    problem |= {"code": code} if code else {}
    problem |= {"param": parameter} if parameter else {}
    return json_reply(status, {"error": problem})


def json_reply(status: int, document: Object) -> Reply:
    """Return a JSON response."""
    headers = {"Content-Type": "application/json", "Request-Id": "req_made_up"}
    return Reply(status, json.dumps(document).encode(), headers)


@contextlib.contextmanager
def stripe_stand_in() -> Iterator[Stripe]:
    """Run a stand-in until the block ends."""
    account = Stripe()
    with serve(account.respond) as served:
        account.served = served
        try:
            yield account
        finally:
            account.go_on.set()
