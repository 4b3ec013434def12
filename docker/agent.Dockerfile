# syntax=docker/dockerfile:1
# The agent. Build from the top of the repository: docker build -f docker/agent.Dockerfile -t slicebus-agent .

FROM python:3.13-slim AS build
WORKDIR /src
COPY docker/requirements.lock docker/
RUN python -m venv /opt/slicebus \
 && /opt/slicebus/bin/pip install --no-cache-dir --require-hashes --requirement docker/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY proto proto
COPY core core
COPY agent agent
COPY manager manager
COPY sandbox sandbox
COPY cli cli
RUN python -m venv /opt/hatch \
 && /opt/hatch/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheel . \
 && /opt/slicebus/bin/pip install --no-cache-dir --no-deps /wheel/*.whl \
 && /opt/slicebus/bin/pip uninstall --yes pip

FROM python:3.13-slim
COPY --from=build /opt/slicebus /opt/slicebus
ENV PATH=/opt/slicebus/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["slicebus"]
CMD ["agent"]
