# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
# TensorFlow 2.21, Horovod on Gloo and keras-parallax; see docs/running/docker.md.
FROM python:3.11-slim-bookworm AS build
WORKDIR /opt/keras-parallax
COPY . .
# What `make env` needs before it installs what it builds with.
RUN apt-get update \
    && apt-get install -y --no-install-recommends make=4.* \
    && rm -rf /var/lib/apt/lists/*
RUN make env STACK=tf2.21

FROM python:3.11-slim-bookworm
# Where it was built: its scripts name this path.
COPY --from=build /opt/keras-parallax/.venv-tf2.21 /opt/keras-parallax/.venv-tf2.21
ENV PATH=/opt/keras-parallax/.venv-tf2.21/bin:$PATH \
    PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 1000 worker
USER 1000
WORKDIR /home/worker
CMD ["keras-parallax", "doctor"]
