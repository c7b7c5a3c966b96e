package policy

import (
	"math"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"job.demo.echo", "job.demo.sleep"}
	for _, tt := range []struct {
		name, word string
		known      []string
		most       int
		want       string
	}{
		{"two letters are changed over", "job.demo.ehco", known, 2, "job.demo.echo"},
		{"one is too many", "job.demo.echos", known, 1, "job.demo.echo"},
		{"more than that is another word", "job.shop.thumbnail", known, 4, ""},
		{"whatever it takes", "x", known, math.MaxInt, "job.demo.echo"},
		{"nothing is known", "x", nil, math.MaxInt, ""},
		{"the same", "job.demo.sleep", known, 0, "job.demo.sleep"},
	} {
		if got := Nearest(tt.word, tt.known, tt.most); got != tt.want {
			t.Errorf("%s: Nearest(%q, %q, %d) = %q, want %q", tt.name, tt.word, tt.known, tt.most, got, tt.want)
		}
	}
}
