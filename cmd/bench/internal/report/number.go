package report

import (
	"fmt"
	"math"
	"strings"
)

func span(sorted []float64) string {
	if len(sorted) == 0 {
		return ""
	}
	return number(sorted[0]) + ".." + number(sorted[len(sorted)-1])
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return group(fmt.Sprint(n))
}

// number shows three digits or so, thousands apart.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return group(fmt.Sprintf("%.0f", v))
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

func group(digits string) string {
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && d != '-' && (len(digits)-i)%3 == 0 && digits[:i] != "-" {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
