#!/opt/tweetwire/bin/python -IS
"""``healthy PORT PATH [METRIC | METRIC=LEAST]…``: a container's health check, with Python's standard library only.

The exit status is 0 if the program answers on its port, and its answer has each METRIC with a value of at least LEAST.
Otherwise the exit status is 1, and the fault is printed. The check runs every few seconds in every container, so it imports few
modules and no packages.
"""

import http.client
import re
import sys

_WITHIN_S = 4.0


def main(port: str, path: str, *wanted: str) -> str | None:
    """Return the fault of the program on this machine's `port`, None if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=_WITHIN_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from port {port}: {error}"
    finally:
        connection.close()
    if answer.status != http.client.OK:
        return f"port {port} answers {answer.status} to {path}"
    return next(filter(None, (_fault(text, *metric.partition("=")[::2]) for metric in wanted)), None)


def _fault(text: str, name: str, least: str) -> str | None:
    values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)", text, re.MULTILINE)
    if not values:
        return f"there is no {name}"
    lowest = min(map(float, values))
    return f"{name} is {lowest:g}" if least and lowest < float(least) else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
