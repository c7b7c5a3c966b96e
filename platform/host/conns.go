package host

// conns says how many connections a host takes at the most, by use: with the API (serve)
// or without (worker). Its pools have these sizes; the doctor and deploy/README.md say
// their sum.
func conns(handlers int, api bool) map[string]int {
	all := map[string]int{
		"handlers": handlers,
		"control":  5, // what is not a handler's: looks, the poll, River, and claims that are opened and given back
		"lease":    3, // one, and two that may hang: it waits behind nothing (F80)
		"listen":   1, // no pool
	}
	if api {
		all["api"] = 10 // its statements at once
	}
	return all
}

// connsOf is the sum of conns.
func connsOf(handlers int, api bool) (sum int) {
	for _, n := range conns(handlers, api) {
		sum += n
	}
	return sum
}
