"""The read side: what stored records say, as explanations, lists, trees and a graph of entities.

====================  ==================================================================================
`texts`               values of a record that may be withheld, and how an answer says so
`documents`           a stored record -> a `Document`: its facts with names and texts in place
`steps`               the events of a document, numbered, amendments laid over them
`step_items`          what each kind of step becomes in ``explain --json``
`explain`             `explanation`: the answer of ``explain --json``, a pure function of documents
`pricing`             money from token counts
`tree`                the seed's tree of an entry
`edges`               what one record adds to the knowledge graph
`rows`                one record -> the rows of the projection
`projection`          the projector: records -> derived tables, exactly once
`record_projection`   one record, and others again because of it
`graph_tables`        nodes, edges, their evidence, counters
`reading`             `Reader`: list, resolve, explain, show, tree from the store
`unprojected`         records that the projection does not know yet
`lines`, `render`     the same answers for people
====================  ==================================================================================

Nothing here writes into the ledger, and nothing here is imported while an agent starts.
"""
