package host

import (
	"fmt"
	"math"

	"github.com/pgmill/pgmill/platform/policy"
)

// didYouMean names the known word that is nearest to a mistyped one: "" if there
// are none.
func didYouMean(word string, known []string) string {
	best := policy.Nearest(word, known, math.MaxInt)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

func envNames() []string {
	var names []string
	for _, s := range settings {
		names = append(names, s.env)
	}
	return names
}

func keys() []string {
	var names []string
	for _, s := range settings {
		if s.key != "config" {
			names = append(names, s.key)
		}
	}
	return names
}
