# Builds rkv on Ubuntu 24.04 and runs its demonstration over shared memory. Written for others to
# run: its authors have no Ubuntu, so nobody has run it yet. BuildKit is needed, which docker has by
# default (it reads ubuntu.Dockerfile.dockerignore).
#
#   docker build -f docker/ubuntu.Dockerfile -t rkv-ubuntu .
#   docker run --rm --shm-size 1g rkv-ubuntu

FROM ubuntu:24.04
WORKDIR /rkv
COPY . .
RUN ./run build release kvserver kvclient
CMD ["./run", "demo", "--transport", "shm"]
