# Runs the tests on an NVIDIA GPU; the host needs the driver and the NVIDIA container toolkit:
#   docker build --tag gpukpca . && docker run --rm --gpus all gpukpca
FROM nvidia/cuda:12.9.1-base-ubuntu24.04

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /gpukpca
COPY . .
# The CUDA libraries come with CuPy.
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir "pip>=25.1" \
    && /opt/venv/bin/pip install --no-cache-dir ".[cli,cuda12,dask,plot]" --group test
ENV PATH=/opt/venv/bin:$PATH
CMD ["bash", "ci/test_gpu.sh"]
