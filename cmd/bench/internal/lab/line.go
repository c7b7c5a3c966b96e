package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Line is the result of one run. What compares it with others (Comparison, Base,
// Session, Round, Rejected) is filled in by whoever interleaved the runs.
type Line struct {
	Comparison string             `json:"comparison,omitempty"`
	Run        string             `json:"run,omitempty"`
	Base       string             `json:"base,omitempty"`
	Session    string             `json:"session,omitempty"` // runs of one session and round are pairs
	Round      int                `json:"round,omitempty"`
	N          int                `json:"n,omitempty"`
	C          int                `json:"c,omitempty"`
	Values     map[string]float64 `json:"values,omitempty"`
	Rejected   bool               `json:"rejected,omitempty"` // too much foreign CPU; the run was repeated
	Failed     string             `json:"failed,omitempty"`
	Machine    string             `json:"machine,omitempty"` // on a line of its own, first in a session
}

// ReadLines reads JSON lines; anything else is an error that names the line.
func ReadLines(in io.Reader) ([]Line, error) {
	var lines []Line
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, 1<<20)
	for no := 1; scan.Scan(); no++ {
		if len(scan.Bytes()) == 0 {
			continue
		}
		var l Line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", no, err)
		}
		lines = append(lines, l)
	}
	return lines, scan.Err()
}

// round keeps five significant digits, more than any run repeats.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*p) / p
}
