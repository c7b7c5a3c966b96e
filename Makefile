# make run     a host with everything it needs, Postgres included, and a demo
# make test    the tests; those where goroutines meet a second time with -race
# make check   what CI runs: format, vet, staticcheck, generated code, build, test
# make elsewhere  the database's tests behind PgBouncer both ways and on Postgres 18, in short: three quarters of an hour
# make matrix  all of them, in full, and on Postgres 15 to 18: hours
# make bench   how fast it is; make soak: whether it stays so (ARGS="…" for both)
# make generate  Go from migrations, sql/functions and sql/queries, after a change there
# make build   the binaries, into .bin/; make image: a container image, without an engine
#
# Missing packages are installed by apt as root or with sudo, else named.

# Packages to test twice, and what bench and soak are told.
RACE_PKGS ?= ./platform/internal/... ./platform/subscription/... ./platform/schedule/... ./platform/wakeup/... ./platform/host/...
ARGS ?=

# Packages to test elsewhere: those whose statements and sessions might differ there.
DB_PKGS     ?= ./platform ./platform/pg ./platform/outbox ./platform/internal/... ./platform/subscription ./platform/schedule ./platform/wakeup ./platform/host ./platform/job ./platform/cleanup ./platform/blob ./platform/api ./functions/...
MATRIX_PKGS ?= ./platform/... ./functions/...

# No version stamp but in `make build`: git refuses it when the tree belongs to another user.
export GOFLAGS := -buildvcs=false $(GOFLAGS)

install  := sh deploy/install-deps.sh
tool     := go tool -modfile=tools.mod
go_dirs  := $(wildcard cmd deploy functions migrations platform sql)
sql_files = $(sort $(wildcard .sqlc.yaml migrations/*.sql sql/functions/*.sql sql/queries/*.sql))
sql_hash  = cat $(sql_files) | if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c 1-64
hash_file = platform/internal/db/.hash

.PHONY: run test check elsewhere matrix bench soak generate build format vet staticcheck generated compile image artifacts

run:
	@$(install) postgres
	go run ./cmd/host serve --profile local --demo

test:
	@$(install) postgres pgbouncer race
	go test -timeout 20m -p 1 ./...
	go test -timeout 20m -p 1 -race -short $(RACE_PKGS)

check: format vet staticcheck generated compile artifacts
	@$(MAKE) --no-print-directory test

elsewhere: versions = 18
elsewhere: packages = -timeout 20m -short $(DB_PKGS)
matrix: versions = 15 16 17 18
matrix: packages = -timeout 30m $(MATRIX_PKGS)
elsewhere matrix:
	@$(install) postgres $(versions:%=postgres-%) pgbouncer
	@failed=; for where in POOLER=transaction POOLER=transaction+direct $(versions:%=POSTGRES=%); do \
		echo "PGMILL_TEST_$$where"; \
		env "PGMILL_TEST_$$where" go test -p 1 $(packages) || failed="$$failed $$where"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

bench:
	@$(install) postgres
	go run ./cmd/bench all --out bench.jsonl $(ARGS)

# The long forms of the fault and model tests, the mutants, the long benchmarks.
soak:
	@$(install) postgres
	PGMILL_SOAK=1 go test -timeout 170m -count=1 -p 1 ./platform/...
	go test -timeout 60m -count=1 -tags mutants ./platform/outbox/model
	go run ./cmd/bench soak $(ARGS)

generate:
	CGO_ENABLED=0 $(tool) sqlc generate -f .sqlc.yaml
	@$(sql_hash) >$(hash_file)

build:
	GOFLAGS= go build -o .bin/ ./cmd/...

image:
	GOFLAGS= go -C deploy/artifacts run . $(ARGS)

# What is in deploy, held against what reads it.
artifacts:
	@$(install) postgres systemd
	cd deploy/artifacts && go vet ./... && go test -timeout 10m ./...

format:
	@files=$$(gofmt -l $(go_dirs)); test -z "$$files" || { echo "not formatted (gofmt -w):" $$files; exit 1; }

vet:
	go vet ./...

staticcheck:
	$(tool) staticcheck ./...

generated:
	@test "$$($(sql_hash))" = "$$(cat $(hash_file))" || { echo "platform/internal/db is not of these migrations and queries: make generate"; exit 1; }

compile:
	go build ./...
