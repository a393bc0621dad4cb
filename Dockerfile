# syntax=docker/dockerfile:1

FROM node:24-bookworm-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
# The script `prepare` needs the sources, and `npm run build` does its work.
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json rolldown.config.ts ./
COPY src src
RUN npm run build && npm prune --omit=dev --ignore-scripts

FROM node:24-bookworm-slim
ARG REVISION=unknown
ENV NODE_ENV=production DATA_DIR=/data BUILD_REVISION=$REVISION
WORKDIR /app
COPY --from=build /build/package.json ./
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist dist
RUN install -d -o node -g node -m 0700 /data && chmod +x dist/cli.js && ln -s /app/dist/cli.js /usr/local/bin/petstore
USER node
VOLUME /data
# The management port, 9090, is only for operators. It listens on the loopback address unless MANAGEMENT_HOST is set.
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.MANAGEMENT_PORT ?? 9090}/healthz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# The exec form, so that Node itself receives SIGTERM.
CMD ["node", "dist/main.js"]
