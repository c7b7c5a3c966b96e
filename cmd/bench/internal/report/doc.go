// Package report turns JSON lines into what people read: a table for each
// comparison, ratios taken pair by pair, and whether its goals are met. It
// measures nothing and imports lab for the lines only.
package report
