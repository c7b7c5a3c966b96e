package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

// sink keeps the lines and writes each at once.
type sink struct {
	lines []lab.Line
	out   io.Writer
	file  *os.File
}

func (o *options) open() (*sink, error) {
	s := &sink{out: io.Discard}
	if o.form == "json" {
		s.out = os.Stdout
	}
	if o.file != "" {
		f, err := os.OpenFile(o.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		s.file, s.out = f, io.MultiWriter(s.out, f)
	}
	return s, nil
}

func (s *sink) add(l lab.Line) error {
	s.lines = append(s.lines, l)
	return json.NewEncoder(s.out).Encode(l)
}

func (s *sink) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
