"""Starlette and what is built on it (FastAPI): where a request begins and ends. No events, no spans.

Read: starlette 0.40.0, 1.10.0. Every subclass comes by `Starlette.__call__`. HTTP requests and WebSocket connections
are requests; a mounted application is a part of the request of the outer one.
"""

from amfs_otel_instrumentation._boundaries import asgi

requires = "starlette >= 0.40, < 2"

hooks = {"starlette.applications:Starlette.__call__": asgi("starlette")}
