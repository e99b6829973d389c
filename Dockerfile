# Two images. `services` is for the Python programs. `spark` has Java 17, for the jobs, the backfill and a cluster.
#
#   docker build --target services -t tweetwire/services .
#   docker build --target spark -t tweetwire/spark .
#
# The packages are installed before the code is copied, so that a build after a change of code takes seconds.

FROM python:3.11-slim-bookworm AS environment
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# Wheels are built in one environment, with the tools and versions of deploy/hashes and no others, and installed into another:
# a running container has neither pip nor a build tool.
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/tweetwire
COPY deploy/hashes/build.txt /hashes/
RUN /opt/build/bin/pip install --quiet --require-hashes --requirement /hashes/build.txt
COPY deploy/install /opt/build/bin/

FROM environment AS build-services
COPY deploy/hashes/services.txt /hashes/
RUN /opt/build/bin/install packages /hashes/services.txt
COPY . /src
RUN /opt/build/bin/install project /src

FROM python:3.11-slim-bookworm AS services
RUN useradd --uid 10001 --create-home tweetwire && install --directory --owner tweetwire /data
COPY deploy/healthy.py /usr/local/bin/healthy
COPY --from=build-services /opt/tweetwire /opt/tweetwire
ENV PATH=/opt/tweetwire/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER tweetwire
WORKDIR /data

# A Java with only the modules that Spark uses, a third of Debian's. It is made on the system where it runs, for its libraries.
FROM python:3.11-slim-bookworm AS java
RUN apt-get update -q && apt-get install -y -q --no-install-recommends openjdk-17-jdk-headless >/dev/null
RUN jlink --output /opt/java --compress=2 --no-header-files --no-man-pages --strip-java-debug-attributes \
      --add-modules java.se,jdk.unsupported,jdk.crypto.ec,jdk.security.auth,jdk.security.jgss,jdk.management,jdk.management.agent,jdk.net,jdk.zipfs,jdk.incubator.vector \
    && /opt/java/bin/java -Xshare:dump >/dev/null

FROM environment AS build-spark
COPY deploy/hashes/spark.txt /hashes/
RUN /opt/build/bin/install packages /hashes/spark.txt
COPY deploy/slim_spark.py /tmp/
RUN python3 /tmp/slim_spark.py /opt/tweetwire
COPY . /src
RUN /opt/build/bin/install project /src

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
