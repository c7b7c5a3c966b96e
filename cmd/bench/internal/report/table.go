package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

// Table writes Markdown: the machine, then for each comparison in the lines a row a
// run and a row a goal. known gives the goals; a comparison that is not known has
// the goals of known ones whose runs it has.
func Table(out io.Writer, lines []lab.Line, known []Comparison) error {
	var machines, names []string
	for _, l := range lines {
		if l.Machine != "" && !slices.Contains(machines, l.Machine) {
			machines = append(machines, l.Machine)
		}
		if l.Run != "" && !slices.Contains(names, l.Comparison) {
			names = append(names, l.Comparison)
		}
	}
	p := &printer{out: out}
	for _, m := range machines {
		p.print("Machine: %s\n\n", m)
	}
	for _, name := range names {
		of := slices.DeleteFunc(slices.Clone(lines), func(l lab.Line) bool { return l.Comparison != name || l.Run == "" })
		p.comparison(find(known, name, of), of)
	}
	return p.err
}

func find(known []Comparison, name string, lines []lab.Line) Comparison {
	if at := slices.IndexFunc(known, func(c Comparison) bool { return c.Name == name }); at >= 0 {
		return known[at]
	}
	var runs []string
	for _, l := range lines {
		runs = append(runs, l.Run)
	}
	c := Comparison{Name: name, Base: lines[0].Base, Metric: MetricOf(known, runs)}
	has := func(label string) bool {
		return label == "" || slices.ContainsFunc(lines, func(l lab.Line) bool { return l.Run == label })
	}
	for _, k := range known {
		for _, g := range k.Goals {
			g.Metric = cmp.Or(g.Metric, k.metric())
			if has(g.Of) && has(g.Than) && !slices.Contains(c.Goals, g) {
				c.Goals = append(c.Goals, g)
			}
		}
	}
	return c
}

type printer struct {
	out io.Writer
	err error
}

func (p *printer) print(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

// Columns of their own; the rest of a run's values stand in the last one.
var inColumns = []string{"seconds", "rate", "p50_ms", "p95_ms", "p99_ms", "client_cpu_s", "total_cpu_s", "foreign_cpu"}

func (p *printer) comparison(c Comparison, lines []lab.Line) {
	metric := c.metric()
	title := metric
	if metric == "rate" {
		title = "per second"
	}
	head := []string{"run", "n", "c", "runs", title, "min..max", "of base", "min..max", "p50 / p99 ms", "CPU µs client / all", "foreign", "other"}
	rows := [][]string{head}
	var runs []string
	for _, l := range lines {
		if !slices.Contains(runs, l.Run) {
			runs = append(runs, l.Run)
		}
	}
	for _, run := range runs {
		rows = append(rows, row(run, c.Base, metric, lines))
	}
	p.print("### %s\n\n", cmp.Or(c.Name, "runs"))
	p.rows(rows)
	if c.Base != "" {
		p.print("\nBase: %s, pair by pair.\n", c.Base)
	}
	for _, check := range c.Check(usable(lines)) {
		p.print("\n- %s", verdict(check))
	}
	p.print("\n\n")
}

func row(run, base, metric string, lines []lab.Line) []string {
	mine := slices.DeleteFunc(slices.Clone(lines), func(l lab.Line) bool { return l.Run != run })
	good := usable(mine)
	if len(good) == 0 {
		return []string{run, "", "", "0", "", "", "", "", "", "", "", mine[len(mine)-1].Failed}
	}
	med := func(name string) float64 { return Median(figures(good, run, "", name)) }
	values := figures(good, run, "", metric)
	cells := []string{run, count(good[0].N), count(good[0].C), fmt.Sprint(len(good)), number(Median(values)), span(values), "", ""}
	if base != "" {
		ratios := figures(usable(lines), run, base, metric)
		cells[6], cells[7] = number(Median(ratios)), span(ratios)
		if len(ratios) == 0 {
			cells[6] = ""
		}
	}
	cells = append(cells, "", "", "")
	if p99 := figures(good, run, "", "p99_ms"); len(p99) > 0 {
		cells[8] = number(med("p50_ms")) + " / " + number(Median(p99))
	}
	if ops := med("rate") * med("seconds"); ops > 0 {
		cells[9] = number(med("client_cpu_s")/ops*1e6) + " / " + number(med("total_cpu_s")/ops*1e6)
	}
	if foreign := figures(good, run, "", "foreign_cpu"); len(foreign) > 0 {
		cells[10] = fmt.Sprintf("%.0f %%", 100*foreign[len(foreign)-1])
	}
	var other []string
	for _, name := range slices.Sorted(maps.Keys(good[0].Values)) {
		if !slices.Contains(inColumns, name) && name != metric {
			other = append(other, name+" "+number(med(name)))
		}
	}
	return append(cells, strings.Join(other, ", "))
}

func usable(lines []lab.Line) []lab.Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l lab.Line) bool { return l.Rejected || l.Failed != "" })
}

func verdict(c Check) string {
	if len(c.Values) == 0 {
		return "not measured: " + c.Goal.String()
	}
	text := "not met"
	if c.Met() {
		text = "met"
	}
	return fmt.Sprintf("**%s**: %s (here %s, %s)", text, c.Goal, number(Median(c.Values)), span(c.Values))
}

// rows prints a Markdown table whose columns line up in a terminal too.
func (p *printer) rows(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len([]rune(cell)), 3)
		}
	}
	for no, r := range rows {
		for i, cell := range r {
			p.print("| %s%s ", cell, strings.Repeat(" ", width[i]-len([]rune(cell))))
		}
		p.print("|\n")
		if no == 0 {
			for _, w := range width {
				p.print("|%s", strings.Repeat("-", w+2))
			}
			p.print("|\n")
		}
	}
}
