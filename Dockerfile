# syntax=docker/dockerfile:1
# One image, two targets: `function` for Lambda (the default), `job` for containers elsewhere, with the command line.
# Everything is baked in, DuckDB's extensions too; nothing is downloaded when it starts.
#
# The digest is what the tag 3.13 was in September 2026; `docker buildx imagetools inspect` of the tag prints a newer one.
# Amazon Linux 2023 is needed, not just recent: the extensions and libarrow want glibc 2.28.

FROM public.ecr.aws/lambda/python:3.13@sha256:14e86df5b36acea7f8fbe101033b54be2f5a5ec7dea463d09177be1bf9e79bd1 AS packages
ARG REQUIREMENTS=aws
COPY requirements/${REQUIREMENTS}.txt /requirements.txt
RUN python -m pip install --no-cache-dir --no-deps --no-compile --require-hashes --only-binary :all: \
      --target /packages -r /requirements.txt
# Lambda's file system is read-only: without byte code in the image every cold start would compile it all again.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /packages

FROM public.ecr.aws/lambda/python:3.13@sha256:14e86df5b36acea7f8fbe101033b54be2f5a5ec7dea463d09177be1bf9e79bd1 AS base
WORKDIR ${LAMBDA_TASK_ROOT}
COPY --from=packages /packages ./
COPY LICENSE NOTICE config.json ./
COPY src/regelate ./regelate
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash regelate
ENV PYTHONPATH=${LAMBDA_TASK_ROOT} \
    REGELATE_CONFIG=${LAMBDA_TASK_ROOT}/config.json
# Lambda has a user of its own whatever stands here; elsewhere it is nobody's, who owns nothing and writes to /tmp alone.
USER 65534:65534
# An image that cannot compact does not come into being: no network, no HOME, a table of five files healed into one.
RUN --network=none python -c "import boto3, pyiceberg.catalog.glue"
RUN --network=none HOME=/nonexistent python -m regelate.entrypoints.demo.selftest

FROM base AS job
WORKDIR /tmp
USER 65534:65534
ENTRYPOINT ["python", "-m", "regelate.entrypoints.cli"]
CMD ["--help"]

FROM base AS function
USER 65534:65534
ENV REGELATE_ENVIRONMENT=production
CMD ["regelate.handler.lambda_handler"]
