"""The record format: signed records, the entries that place them in a log, and the verifier.

Pure code: no database, no OpenTelemetry, no threads, no clock and no environment are read here; times and keys are
arguments. The only randomness is that of salts, ids and new keys. ``cryptography`` is imported only where an Ed25519
key is used.

``FORMAT.md`` beside this file is normative; the modules cite its paragraphs as "FORMAT 3.2".

==============  =========================================================================================
`jcs`           the encoder of RFC 8785, strict
`normalise`     any value -> a JSON-able tree
`canonical`     any value -> canonical bytes, without ever raising; times
`hashes`        every formula of the format
`keys`          HMAC and Ed25519 keys, key ids, key text
`header`        the grammar of a record's header and of the facts that it may carry
`parts`         the erasable bytes that a record commits to
`record`        a signed record, and its wire form
`record_id`     the id of a record
`skeleton`      a facts tree <-> skeleton, strings, texts, digests
`genesis`       the first record of a log, and key records
`entry`         a record's place in the log
`merkle`        RFC 6962 roots and proofs
`checkpoint`    C2SP signed notes over a root
`findings`      codes, verdicts, and which code leads to which verdict
`trust`         which key may sign what, by the log and by a trust file
`check`         what a record shows by itself
`pending`       what can be judged only when the whole log was read
`verification`  what goes into a verification and what comes out
`verify`        the verifier of a whole log
`lines`         a log as JSON lines, for files and evidence
==============  =========================================================================================
"""
