package platform

import "context"

type traceKey struct{}

// WithTrace gives a context a trace: what is emitted and enqueued with it is of that trace,
// unless it names another. "" leaves the context as it is. A Step's Run and a
// Subscription's Handle get theirs so; the transaction of a Step's Handle has it as
// pgmill.trace_id, so that whatever is emitted or submitted through it inherits, by SQL, too.
func WithTrace(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, id)
}

// Trace is a context's trace; "" if it has none.
func Trace(ctx context.Context) string {
	id, _ := ctx.Value(traceKey{}).(string)
	return id
}
