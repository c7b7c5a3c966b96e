// Command peers measures other systems with the clocks of cmd/bench, in a module of
// its own so that their dependencies stay out of the project's. It prints the same
// JSON lines; `bench table` takes them, and bench itself runs it in turns with the
// rest when it is told where it is:
//
//	(cd cmd/bench/peers && go build -o /tmp/peers .)
//	REDIS_ADDR=127.0.0.1:6379 AMQP_URL=amqp://guest:guest@127.0.0.1:5672/ \
//	bench run --peers /tmp/peers -r 3 latency:pgmill latency:asynq_tuned latency:rabbitmq
//	bench run --peers /tmp/peers -r 3 subscribe:pgmill_noop subscribe:watermill_500,n=20000
//
// It starts no service. Watermill wants PG_DSN (bench sets it), Asynq REDIS_ADDR
// and an otherwise empty Redis, since it flushes it, RabbitMQ AMQP_URL. The CPU of
// Redis and RabbitMQ counts as foreign unless BENCH_PIDS names their processes.
package main
