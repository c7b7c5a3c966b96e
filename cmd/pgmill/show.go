package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// column is one column of a table for people.
type column[T any] struct {
	title string
	of    func(T) any
}

// show prints a list: a table, or with -o json what the API answered.
func show[T any](p *program, answer any, items []T, columns []column[T]) error {
	if p.output == "json" {
		return printJSON(p.stdout, answer)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		fmt.Fprint(w, tab(i), c.title)
	}
	fmt.Fprintln(w)
	for _, item := range items {
		for i, c := range columns {
			fmt.Fprint(w, tab(i), cell(c.of(item)))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func tab(i int) string {
	if i == 0 {
		return ""
	}
	return "\t"
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// at is a time in microseconds.
type at int64

// cell is a value for people: no control characters, a dash for what is missing.
func cell(v any) string {
	text := fmt.Sprint(v)
	switch v := v.(type) {
	case at:
		text = ""
		if v != 0 {
			text = time.UnixMicro(int64(v)).Local().Format(time.DateTime)
		}
	case json.RawMessage:
		text = string(v)
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
	if text == "" {
		return "-"
	}
	return text
}
