"""Flask: where a request begins and ends. No events, no spans.

Read: flask 3.0.0, 3.1.3. `Flask.__call__` and not `wsgi_app`, which applications replace by middleware on the instance:
the call has the middleware inside, and an application that was made before us is covered too.
"""

from amfs_otel_instrumentation._boundaries import wsgi

requires = "flask >= 3, < 4"

hooks = {"flask.app:Flask.__call__": wsgi("flask")}
