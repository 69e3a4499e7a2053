# The course in a container, for CPUs or for GPUs.
#
#   docker build -t course .                                   # CPU
#   docker build -t course --build-arg TORCH=cuda .            # GPUs
#   docker run --rm -it -p 127.0.0.1:8888:8888 --shm-size 2g course
#   docker run --rm -it -p 127.0.0.1:8888:8888 --shm-size 8g --gpus all course
#
# For marks that count, INSTRUCTORS.md builds it from a copy without `solutions/`.
#
# Ranks hand tensors to the notebook, and NCCL's to each other, through shared memory, of which a
# container has 64 MB unless it is told otherwise.

# Any Debian with Python 3.11 or newer; CUDA's libraries come with torch, the driver from the host.
ARG BASE=python:3.11-slim
FROM ${BASE}

RUN apt-get update \
    && apt-get install --yes --no-install-recommends make g++ procps \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 learner \
    && install --directory --owner learner /course
USER learner
WORKDIR /course

# No GPU can be seen while an image is built, so it is said which torch is wanted: cpu or cuda.
ARG TORCH=cpu
ENV TORCH=${TORCH} \
    PIP_NO_CACHE_DIR=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PATH=/course/.venv/bin:${PATH}

# First what changes seldom: an edit of the course does not install torch again.
COPY --chown=learner install.py requirements.txt constraints.txt ./
RUN python3 install.py --torch ${TORCH}

COPY --chown=learner . .
RUN make .venv/ready

EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--ServerApp.root_dir=/course", \
     "notebooks/00_ranks_and_the_ledger.ipynb"]
