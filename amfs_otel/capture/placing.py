"""Where an event belongs: the rules of architecture.md, "Life of a trace", on the caller's thread."""

from opentelemetry import context
from opentelemetry.context import Context

from amfs_otel.capture.ambient import STEP_KEY, current_run, explicit_session, last_memory, place_here
from amfs_otel.capture.sessions import Place, Session, Window
from amfs_otel.capture.steps import Step
from amfs_otel.capture.windows import Windows
from amfs_otel.model import ClosedBy
from amfs_otel.settings import Settings


class Placing:
    """Resolves windows.

    Args:
        settings: The process's settings.
        windows: Its open windows.
    """

    def __init__(self, settings: Settings, windows: Windows) -> None:
        self.settings = settings
        self.windows = windows

    def place(self) -> Place:
        """Where the caller is now; inside one of our steps, where that step is."""
        here = context.get_current()
        outer = self.step_in(here)
        return place_here(here) if outer is None else outer.place

    @staticmethod
    def step_in(here: Context) -> Step | None:
        """The innermost step of ours in `here`, unless it has ended."""
        step = here.get(STEP_KEY)
        return step if isinstance(step, Step) and not step.done else None

    def resolve(self, place: Place, memory: Session | None = None, inside: Step | None = None) -> tuple[Window, str]:
        """The window for an event at `place`, opened if need be, and how it was found (`joined`, `inferred`, empty).

        Call it under `windows.lock`, together with the placing. What is a part of the step `inside` lies in its window,
        wherever the context leads, unless that has closed or an explicit session was opened since.
        """
        window, flags = self._resolved(place, memory, inside)
        if memory is not None and memory is not window.session:
            window.memories[memory] = memory.last
        return window, flags

    def _resolved(self, place: Place, memory: Session | None, inside: Step | None) -> tuple[Window, str]:
        windows = self.windows
        windows.close_due()
        if inside is not None:
            outer, explicit = inside.placed.window, explicit_session.get()
            if windows.open_window(outer.session) is outer and (
                explicit is None or explicit.ended or explicit is outer.session
            ):
                return windows.window_of(outer.session, place), inside.event.flags
        session = self._named_session(place, memory)
        if session is not None:
            return windows.window_of(session, place), ""
        window = windows.only_open(place)
        if window is not None:
            return window, "joined"
        implicit = windows.implicit_session(place, self.settings.default_agent)
        assert implicit is not None
        return windows.window_of(implicit, place), "inferred"

    def existing(self, place: Place, memory: Session | None = None) -> Window | None:
        """The open window into which an event at `place` would fall, never opening one."""
        with self.windows.lock:
            session = self._named_session(place, memory, opens=False)
            if session is not None:
                return self.windows.open_window(session)
            joined = self.windows.only_open(place)
            if joined is not None:
                return joined
            implicit = self.windows.implicit_session(place, self.settings.default_agent, create=False)
            return self.windows.open_window(implicit) if implicit is not None else None

    def _named_session(self, place: Place, memory: Session | None, *, opens: bool = True) -> Session | None:
        """Rules 1 to 4."""
        explicit = explicit_session.get()
        if explicit is not None and not explicit.ended:
            return explicit
        run = current_run.get()
        if run is not None and not run.ended:
            if memory is not None and opens and run.window is not None and run.window.committed:
                self.windows.close(run.window, ClosedBy.COMMIT)
            return run
        if memory is not None:
            return memory
        used = self.memory_session(place)
        if used is not None:
            return used
        if place.claimed_session is not None and self.settings.trust_baggage:
            return self._remote_session(place.claimed_session, place)
        return None

    def memory_session(self, place: Place) -> Session | None:
        """The session of the tracker last used in this context, if its window is open (rule 3)."""
        used = last_memory.get()
        if used is None:
            return None
        session, seq = used
        since = place.request.seq if place.request is not None else 0
        return session if since < seq and self.windows.open_window(session) is not None else None

    def _remote_session(self, claimed: str, place: Place) -> Session | None:
        if len(claimed) != 32 or not all(c in "0123456789abcdef" for c in claimed):
            return None
        return self.windows.remote_session(claimed, self.settings.default_agent, place)
