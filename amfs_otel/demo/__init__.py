"""The seed's story as a demo: three agents, a late outcome, and a model server on loopback.

``programs/`` holds ordinary programs on the real ``amfs``, ``openai``, ``langgraph`` and ``anthropic``, without a line
of instrumentation. :mod:`~amfs_otel.demo.story` is the story as data, :mod:`~amfs_otel.demo.stage` says how to run it,
:mod:`~amfs_otel.demo.model_server` answers as the model.
"""
