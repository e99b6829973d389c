"""``read``: show the stored events from a place on."""

from typing import Annotated

from tweetwire.cli.connection import CommandConnection, EventJsonSwitch, TopicArgument
from tweetwire.cli.display import event_writer
from tweetwire.cli.flags import Flag, argument
from tweetwire.cli.kinds import whole
from tweetwire.cli.places import PLACE

__all__ = ["Read"]


class Read(CommandConnection, kw_only=True):
    """Show stored events from a place on. It affects no subscription, and no event counts as delivered."""

    examples = ("tweetwire read orders @1042 --count 1", "tweetwire read orders yesterday --json")

    topic: TopicArgument
    place: Annotated[int | str, argument(PLACE, "where to begin")]
    count: Annotated[int, Flag(whole(1, 100_000), "largest number of events", short="-n")] = 10
    is_json: EventJsonSwitch = False

    def run_command(self) -> None:
        """Show the events. A long topic is read in parts, because an answer has a limit in bytes."""
        write = event_writer(is_json=self.is_json)
        at, left = self.place, self.count
        with self.connect() as client:
            while left:
                lines, after = client.read_lines(self.topic, at, limit=left)
                for line in lines:
                    write(line)
                if not lines and after == at:
                    return
                at, left = after, left - len(lines)
