package host

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

// show prints a list: a table, or with -o json an array of the items themselves.
func show[T any](o *options, items []T, columns []column[T]) error {
	if o.output == "json" {
		if items == nil {
			items = []T{}
		}
		return printJSON(o.stdout, items)
	}
	w := tabwriter.NewWriter(o.stdout, 0, 0, 2, ' ', 0)
	row := func(of func(column[T]) string) {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = of(c)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row(func(c column[T]) string { return c.title })
	for _, item := range items {
		row(func(c column[T]) string { return cell(c.of(item)) })
	}
	return w.Flush()
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// cell is a value for people; what is missing is a dash.
func cell(v any) string {
	switch v := v.(type) {
	case *string:
		if v == nil {
			return "-"
		}
		return cell(*v)
	case *int64:
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	case *time.Time:
		if v == nil {
			return "-"
		}
		return v.Local().Format(time.DateTime)
	case string:
		if v == "" {
			return "-"
		}
		return strings.Join(strings.Fields(v), " ")
	default:
		return fmt.Sprint(v)
	}
}
