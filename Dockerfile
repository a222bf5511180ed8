# `haltwise serve` and `haltwise proxy`:
#
#   docker build -t haltwise .
#   docker run -p 7070:7070 -e HALTWISE_TOKEN -v ./rule.json:/rules/rule.json:ro -v haltwise:/store \
#       haltwise serve /rules/rule.json --store /store --listen 0.0.0.0:7070
#   docker run -p 8088:8088 -e HALTWISE_TOKEN -e HALTWISE_PROXY_KEYS -e READY=http://127.0.0.1:8088/ready \
#       -v ./rule.json:/rules/rule.json:ro -v haltwise:/store \
#       haltwise proxy --rule /rules/rule.json --server http://models:8000 --store /store --listen 0.0.0.0:8088
#
# To be reached from other machines, both want a token in HALTWISE_TOKEN, and proxy also keys in HALTWISE_PROXY_KEYS.

# Pin both images by digest where a registry can be reached, as in `FROM rust:1.95-slim-bookworm@sha256:…`;
# `docker buildx imagetools inspect IMAGE` prints it, and Dependabot then keeps it up to date.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /haltwise
COPY . .
RUN cargo build --release --locked -p haltwise-cli && strip target/release/haltwise

FROM debian:bookworm-slim
# For the health check only: the certificates of authorities are built in.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends curl && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 7070 --home-dir /store haltwise \
    && install -d -o haltwise -g haltwise /store
COPY --from=build /haltwise/target/release/haltwise /usr/local/bin/haltwise
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/haltwise/
USER 7070
WORKDIR /store
VOLUME /store
EXPOSE 7070 8088
ENV READY=http://127.0.0.1:7070/ready
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["sh", "-c", "curl -sf -o /dev/null \"$READY\""]
# It finishes what it has begun on SIGTERM, which is what `docker stop` sends.
ENTRYPOINT ["haltwise"]
CMD ["--help"]
