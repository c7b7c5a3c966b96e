// Command artifacts builds the container image of a host, without a Docker engine:
//
//	make image                                          # cmd/host, for this machine's architecture
//	make image ARGS="--arch arm64 --main ./cmd/shop"    # another architecture, a host of one's own
//
// The image has the static binary, Mozilla's roots for TLS to the database, a user
// without rights, and nothing else: no shell, no package manager, no Postgres. The
// same sources give the same digest. It is written as an OCI layout (a directory) and
// as a tarball for `docker load`, `podman load` and `crane push`.
//
// The tests of this module hold what is beside it in deploy against what reads it: the
// image runs as PID 1 of its own root, manifests decode strictly into the types of
// Kubernetes and KEDA's own schema, the compose file loads as compose loads it, and the
// unit passes systemd-analyze. It is a module of its own so that those dependencies
// stay out of the project's.
package main
