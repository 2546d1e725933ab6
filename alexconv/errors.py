"""Errors that a user can act on.  Each one's text is a single clear line; the commands print it and exit."""


class AlexconvError(Exception):
    """A failure that ends the command with ``exit_status``."""

    exit_status = 1


class UsageError(AlexconvError):
    """A bad request: unknown name, bad number, unwritable folder."""

    exit_status = 2


class MissingTool(AlexconvError):
    """A compiler, driver or device that the request needs is not on this machine."""


class CompileError(AlexconvError):
    """A kernel did not compile; the text ends with the compiler's first error line."""


class MachineFault(AlexconvError):
    """The machine cannot do the work now: a disk is full, memory is short, a compiler was killed.

    Nothing about the work itself, so it ends a run and is not recorded.
    """


class LaunchError(AlexconvError):
    """A kernel could not be launched, or failed while it ran."""


class OutOfMemory(AlexconvError):
    """An allocation failed that the planner found to fit."""


class Untrusted(AlexconvError):
    """The timed launches did not compute what was checked, or took less time than the hardware can."""
