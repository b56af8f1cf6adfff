"""The read side: what stored records say, as explanations, lists, trees and a graph of entities.

==============  ======================================================================================
`texts`         values of a record that may be withheld, and how an answer says so
`documents`     a stored record -> a `Document`: its facts with names and texts in place
`steps`         the events of a document, amendments laid over them; what each means to `explain`
`explain`       `explanation`: the answer of ``explain --json``, a pure function of documents
`pricing`       money from token counts
`tree`          the seed's tree of an entry
`edges`         what one record adds to the knowledge graph
`rows`          one record -> the rows of the projection
`projection`    the projector: records -> derived tables, exactly once
`reading`       `Reader`: list, resolve, explain, tree from the store
`render`        the same answers for people
==============  ======================================================================================

Nothing here writes into the ledger, and nothing here is imported while an agent starts.
"""
