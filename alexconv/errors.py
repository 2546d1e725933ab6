"""Errors that a user can act on.  Each one's text is a single clear line; the commands print it and exit."""


class AlexconvError(Exception):
    """Something the run cannot go on without failed; the command exits with ``exit_status``."""

    exit_status = 1


class UsageError(AlexconvError):
    """The request itself makes no sense: unknown name, bad number, unwritable folder."""

    exit_status = 2


class MissingTool(AlexconvError):
    """A compiler, driver or device that the request needs is not on this machine."""


class CompileError(AlexconvError):
    """A kernel did not compile; the text ends with the compiler's first error line."""


class LaunchError(AlexconvError):
    """A kernel could not be launched, or failed while it ran."""


class OutOfMemory(AlexconvError):
    """An allocation failed although the planner had counted on it."""


class Untrusted(AlexconvError):
    """What was timed is not what was checked, or its time is none that the hardware can reach."""
