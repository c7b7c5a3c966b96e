// Package host makes a process out of registered functions: a configuration and a
// profile become running services, and drain again. It owns the command line, the
// probes, the metrics and the one logger, and may import everything below it.
//
// A host of one's own is a main that imports its functions and calls Main.
package host
