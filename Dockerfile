# Two images: `services` for the Python programs, `spark` with Java 17 for the jobs, the backfill and a cluster's master and workers.
#   docker build --target services -t tweetwire/services .
#   docker build --target spark -t tweetwire/spark .
# What the programs need is installed before their code is copied, so that a change of code costs seconds.

FROM python:3.11-slim-bookworm AS environment
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# pip stays outside: nothing is installed into a running container.
RUN python3 -m venv --without-pip /opt/tweetwire
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN mkdir broker change_stream demo spark sse_ingest subscriber

FROM environment AS build-services
RUN pip --python /opt/tweetwire/bin/python install --quiet --constraint constraints.txt '.[ingest,mongo,mock,dashboard]'
COPY . .
RUN pip --python /opt/tweetwire/bin/python install --quiet --no-deps --force-reinstall .

FROM python:3.11-slim-bookworm AS services
RUN useradd --uid 10001 --create-home tweetwire && install --directory --owner tweetwire /data
COPY deploy/healthy.py /usr/local/bin/healthy
COPY --from=build-services /opt/tweetwire /opt/tweetwire
ENV PATH=/opt/tweetwire/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER tweetwire
WORKDIR /data

# A Java with the modules that Spark uses: a third of Debian's. Made where it will run, for the system's own libraries.
FROM python:3.11-slim-bookworm AS java
RUN apt-get update -q && apt-get install -y -q --no-install-recommends openjdk-17-jdk-headless >/dev/null
RUN jlink --output /opt/java --compress=2 --no-header-files --no-man-pages --strip-java-debug-attributes \
      --add-modules java.se,jdk.unsupported,jdk.crypto.ec,jdk.security.auth,jdk.security.jgss,jdk.management,jdk.management.agent,jdk.net,jdk.zipfs,jdk.incubator.vector \
    && /opt/java/bin/java -Xshare:dump >/dev/null

FROM environment AS build-spark
RUN pip --python /opt/tweetwire/bin/python install --quiet --constraint constraints.txt '.[spark,backfill]'
COPY deploy/slim_spark.py /tmp/
RUN python3 /tmp/slim_spark.py /opt/tweetwire
COPY . .
RUN pip --python /opt/tweetwire/bin/python install --quiet --no-deps --force-reinstall .

FROM python:3.11-slim-bookworm AS spark
RUN useradd --uid 10001 --create-home tweetwire && install --directory --owner tweetwire /data
COPY deploy/healthy.py /usr/local/bin/healthy
COPY deploy/spark-defaults.conf /etc/spark/
COPY --from=java /opt/java /opt/java
COPY --from=build-spark /opt/tweetwire /opt/tweetwire
ENV JAVA_HOME=/opt/java SPARK_CONF_DIR=/etc/spark PATH=/opt/tweetwire/bin:/opt/java/bin:$PATH \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER tweetwire
WORKDIR /data
