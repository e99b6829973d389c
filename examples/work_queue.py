"""Share the jobs of one topic among several workers; a job that fails is retried, at most three times.

Workers share one durable subscription, so each job goes to one of them. If you start the program several times, the workers of
all processes share the jobs.

    python examples/work_queue.py --jobs 20 --workers 4
"""

import argparse
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from tweetwire import Event, SyncClient

QUIET_S = 2.0


def work(broker: str, worker: int) -> int:
    """Do jobs until none comes for two seconds. Return how many succeeded."""
    done = 0
    with SyncClient(broker, name=f"worker-{worker}") as client:
        # `prefetch=1`: a slow worker does not hold jobs that another one could do.
        jobs = client.subscribe("jobs", as_="workers", from_="earliest", prefetch=1, timeout_s=30, tries=3)
        while batch := jobs.take(within_s=QUIET_S):
            for job in batch:
                number = job.decode()["number"]
                if number % 7 == 0 and job.attempt == 1:
                    jobs.nack(job, "the first try of every seventh job fails")
                    continue
                time.sleep(0.01)
                jobs.ack([job])
                print(f"worker {worker} did job {number} at try {job.attempt}", flush=True)
                done += 1
    return done


def main(broker: str, jobs: int, workers: int) -> None:
    """Publish `jobs` jobs and let `workers` threads do them."""
    with SyncClient(broker, name="work_queue") as client:
        run = uuid.uuid4()
        client.publish_many(
            "jobs", [Event(id=f"{run}-{number}", msg={"number": number}) for number in range(1, jobs + 1)]
        )
    with ThreadPoolExecutor(workers) as pool:
        done = sum(pool.map(lambda worker: work(broker, worker), range(1, workers + 1)))
    print(f"{done} jobs done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", default="localhost:8000", help="host:port (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=20, help="how many jobs to publish (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="threads that do jobs (default: %(default)s)")
    arguments = parser.parse_args()
    main(arguments.broker, arguments.jobs, arguments.workers)
