"""Every error this library raises on purpose.

::

    AmfsOtelError
    ├── ConfigurationError      a setting, a file or an argument cannot be used
    ├── KeyUnavailable          a key is needed and is not within reach
    ├── StoreError              the record store refused or answered nonsense
    │   ├── StoreUnavailable    it could not be reached; nothing was lost, try again
    │   └── StoreConflict       the same record id stands there with other bytes
    ├── SpoolError              the local spool could not take or give a frame
    ├── FormatError             bytes are not of the format they claim
    └── VerificationError       a verification could not be carried out (findings are results, not errors)

A message says where, what, what was expected and what came, and what to do. It never holds a secret or content.
"""


class AmfsOtelError(Exception):
    """Root of the tree.

    Args:
        what: What went wrong, one clause, no final stop.
        where: The place: a setting's name, a path, a table, a paragraph of FORMAT.md.
        expected: What would have been right.
        got: What was there instead; never a secret, never content.
        hint: What the reader can do about it.
    """

    def __init__(
        self, what: str, *, where: str = "", expected: object = None, got: object = None, hint: str = ""
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.hint = hint
        super().__init__(self._message())

    def _message(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.expected is not None:
            text += f"; expected {self.expected}"
        if self.got is not None:
            text += f", got {self.got}" if self.expected is not None else f"; got {self.got}"
        return f"{text}. {self.hint}" if self.hint else text


class ConfigurationError(AmfsOtelError):
    """A setting, a file or an argument cannot be used as given."""


class KeyUnavailable(AmfsOtelError):
    """A key is needed and is not within reach of this process."""


class StoreError(AmfsOtelError):
    """The record store refused a statement or answered what it must not."""


class StoreUnavailable(StoreError):
    """The record store could not be reached. Nothing was lost; the call may be repeated."""


class StoreConflict(StoreError):
    """The same record id stands in the store with other bytes."""


class SpoolError(AmfsOtelError):
    """The local spool could not take or give a frame."""


class FormatError(AmfsOtelError):
    """Bytes are not of the format they claim to be."""


class VerificationError(AmfsOtelError):
    """A verification could not be carried out at all; what it saw is reported as findings instead."""
