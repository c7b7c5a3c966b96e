// Package lab is what a scenario needs and nothing more: its parameters, a fresh
// database, a meter of time and CPU, closed and open loops, and one JSON line at
// the end. Each run is a process of its own, so that memory and pools of one never
// show in the next. The peers' module under cmd/bench/peers uses it too, which is
// why it imports pgx and the standard library only.
package lab
