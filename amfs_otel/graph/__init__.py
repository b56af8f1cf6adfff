"""The read side: what stored records say, as explanations, lists, trees and a graph of entities.

====================  ==================================================================================
`texts`               values of a record that may be withheld, and how an answer says so
`documents`           a stored record -> a `Document`: its facts with names and texts in place
`steps`               the events of a document, numbered, amendments laid over them
`step_items`          what each kind of step becomes in ``explain --json``
`inputs`              what a decision rests on, by id, and which model call took it in
`continuation`        which trace continues which
`explain`             `explanation`: the answer of ``explain --json``, a pure function of documents
`pricing`             money from token counts
`tree`                the seed's tree of an entry
`edges`               what one record adds to the knowledge graph
`rows`                one record -> the rows of the projection
`projection`          the projector: records -> derived tables, exactly once
`batch_projection`    some records at a time, and others again because of them
`earlier`             confidences that earlier records saw, for a batch
`graph_tables`        nodes, edges, their evidence, counters
`continuation_tables` continuations in the store
`reading`             `Reader`: list, resolve, explain, show, tree from the store
`related`             which records belong together, in one state of the store
`loading`             documents out of the ledger
`unprojected`         records that the projection does not know yet
`lines`, `render`     the same answers for people
====================  ==================================================================================

Nothing here writes into the ledger, and nothing here is imported while an agent starts.
"""
