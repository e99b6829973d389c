"""All attacks, each with the kind of server that it targets."""

from tests.hostile.attacks import administering, commands, connections, http, logins
from tests.hostile.attacks.attack import Attack

__all__ = ["ATTACKS", "Attack"]

ATTACKS = (*connections.ATTACKS, *logins.ATTACKS, *commands.ATTACKS, *administering.ATTACKS, *http.ATTACKS)
