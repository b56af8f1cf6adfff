"""The mark of a request or task: what keeps the events of one request apart from those of all others.

It stands in a ContextVar, so that it follows a request into its tasks, its thread pool and its streamed body. Two
parties set it: the boundary hooks of web frameworks and task queues, which see the whole call, and the processor that
sees SERVER and CONSUMER spans, which may end before a streamed body does. One request has one mark: where a hook has
set it, the first such span inside is taken for that request's own.
"""

from contextvars import ContextVar

from amfs_otel.capture.sessions import Request, next_seq

current_request: ContextVar[Request | None] = ContextVar("amfs_otel_request", default=None)


def open_request() -> Request | None:
    """The innermost request in which the caller is, and which has not ended."""
    request = current_request.get()
    while request is not None and not request.open:
        request = request.outer
    return request


def begin_request() -> Request:
    """Marks the start of a request or task in this context, inside another one or not."""
    request = Request(next_seq(), outer=open_request())
    current_request.set(request)
    return request


def enter_request() -> Request | None:
    """`begin_request` for a boundary hook; `None` where what it begins is a part of a request that is open here."""
    here = open_request()
    if here is not None and not here.returned:
        return None
    return begin_request()


def request_of_span(span_id: int) -> Request | None:
    """`begin_request` for a SERVER or CONSUMER span; `None` where its request is marked already.

    That was done by a hook, or for the span itself: a provider that stands for another tells of it once more.
    """
    here = open_request()
    if here is not None and here.span_id in (0, span_id):
        here.span_id = span_id
        return None
    request = begin_request()
    request.span_id = span_id
    return request
