package host

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgmill/pgmill/platform"
)

// factory makes metrics with our prefix and registers them.
type factory struct{ registry *prometheus.Registry }

// series are the counters of one metric by label value, a closed set.
type series map[string]prometheus.Counter

// count counts under a value of the set, or under other if it is none.
func (s series) count(value, other string) {
	c, ok := s[value]
	if !ok {
		c = s[other]
	}
	c.Inc()
}

func (f factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "pgmill", Name: name, Help: help})
	f.registry.MustRegister(c)
	return c
}

func (f factory) counters(name, help, label string, values ...string) series {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "pgmill", Name: name, Help: help}, []string{label})
	f.registry.MustRegister(v)
	s := series{}
	for _, value := range values {
		s[value] = v.WithLabelValues(value)
	}
	return s
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "pgmill", Name: name, Help: help})
	f.registry.MustRegister(g)
	return g
}

func (f factory) gauges(name, help, label string, values ...string) map[string]prometheus.Gauge {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "pgmill", Name: name, Help: help}, []string{label})
	f.registry.MustRegister(v)
	g := map[string]prometheus.Gauge{}
	for _, value := range values {
		g[value] = v.WithLabelValues(value)
	}
	return g
}

func (f factory) histogram(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "pgmill", Name: name, Help: help,
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}})
	f.registry.MustRegister(h)
	return h
}

func asStrings(reasons []platform.Reason) []string {
	var all []string
	for _, r := range reasons {
		all = append(all, string(r))
	}
	return all
}
