# syntax=docker/dockerfile:1
# The manager. Build from the top of the repository: docker build -f docker/manager.Dockerfile -t slicebus-manager .

# With a digest a build is the same tomorrow: --build-arg BASE=python:3.13-slim@sha256:...
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY docker/manager.lock docker/build.lock docker/
RUN python -m venv /opt/slicebus \
 && /opt/slicebus/bin/pip install --no-cache-dir --require-hashes --requirement docker/manager.lock
COPY pyproject.toml README.md LICENSE ./
COPY proto proto
COPY core core
COPY agent agent
COPY manager manager
COPY cli cli
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --requirement docker/build.lock \
 && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel . \
 && /opt/slicebus/bin/pip install --no-cache-dir --no-deps --no-index /wheel/*.whl \
 && /opt/slicebus/bin/pip uninstall --yes pip \
 && /opt/build/bin/cyclonedx-py requirements docker/manager.lock --pyproject pyproject.toml \
      --output-reproducible --of JSON -o /opt/slicebus/sbom.cdx.json

FROM ${BASE}
COPY --from=build /opt/slicebus /opt/slicebus
ENV PATH=/opt/slicebus/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["slicebus"]
CMD ["manager"]
