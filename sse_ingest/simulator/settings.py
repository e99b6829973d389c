"""The settings of the simulator."""

from pathlib import Path

from pydantic import Field, model_validator

from tweetwire.runtime.program import ProgramSettings, settings_config

__all__ = ["SimulatorSettings"]


class SimulatorSettings(ProgramSettings):
    """Serves Twitter v1.1 objects as the rtp-server does: /tweets/1 and /tweets/2 (SSE), /emotion_values, /.

    Each connection starts at the first tweet, as with the server, unless --live is given.
    """

    model_config = settings_config("python -m sse_ingest.simulator")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(4000, ge=0, le=65535, description="HTTP port, 0 for any free one")
    rate: float = Field(0.0, ge=0, description="tweets a second on each route; 0: the server's bursts of 100")
    count: int = Field(0, ge=0, description="tweets of each route, after which it ends permanently (204); 0: no end")
    replay: Path | None = Field(None, description="serve the tweets of this file (JSON Lines) instead of invented ones")
    loop: bool = Field(False, description="restart the replayed file when it ends")
    seed: int | None = Field(None, description="the same seed gives the same tweets (default: new ones each start)")
    panic_every: int = Field(200, ge=0, description="number of tweets between two panic messages; 0: none")
    live: bool = Field(False, description="start a connection at the route's newest tweet instead of its first")

    @model_validator(mode="after")
    def _is_consistent(self) -> "SimulatorSettings":
        if self.loop and self.replay is None:
            raise ValueError("--loop is for --replay; invented tweets never end, except with --count")
        return self
