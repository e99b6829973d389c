"""One Spark session for all tests of the jobs: starting one takes seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.apps.session import build_session


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = build_session("local[2]", app="tweetwire-tests", scratch=tmp_path_factory.mktemp("spark-scratch"))
    yield session
    session.stop()
