"""Django: where a request begins and ends, WSGI and ASGI. No events, no spans.

Read: django 5.0, 5.2.19. Both handlers derive from `BaseHandler`; their modules import its module, so they have no
classes yet when we are called: they are wrapped when the first handler loads its middleware.
"""

from collections.abc import Callable
from typing import Any

from amfs_otel import guard, instrumentor
from amfs_otel_instrumentation._boundaries import asgi, wsgi

requires = "django >= 5, < 6"

SOURCE = "django"


def _loaded(wrapped: Callable[..., Any], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    guard.run(SOURCE, instrumentor.settle, SOURCE)
    return wrapped(*args, **kwargs)


hooks = {"django.core.handlers.base:BaseHandler.load_middleware": _loaded}
hooks_when_imported = {
    "django.core.handlers.wsgi:WSGIHandler.__call__": wsgi(SOURCE),
    "django.core.handlers.asgi:ASGIHandler.__call__": asgi(SOURCE),
}
